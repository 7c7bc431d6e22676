//! `#[derive(Job)]` for the library `tidegate`. Use it through that library, which documents every attribute.
//!
//! What can be checked is checked while the program compiles: names, spans, priorities and policies, each error at
//! the attribute that caused it.
#![warn(missing_docs)]

mod attributes;
mod expand;

use proc_macro::TokenStream;

/// Makes a type the payload of a kind of job.
///
/// | Attribute | Meaning | Default |
/// |---|---|---|
/// | `kind = "invoice.send"` | name of the kind | the type's name as `send-invoice` |
/// | `queue = "billing"` | queue of its jobs | `default` |
/// | `timeout = "30s"` | timeout of one attempt | 30 s |
/// | `priority = "high"` | critical, high, medium or low | medium |
/// | `max_attempts = 5` | cap on attempts over all categories | by policy |
/// | `retry = "webhook"` | a named retry policy | by category |
/// | `connector = "shopify"` | the API that its jobs call | none |
/// | `description = "…"` | what it does, for people | empty |
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
