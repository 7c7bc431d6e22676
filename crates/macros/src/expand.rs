//! Writes the implementation.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

use crate::attributes::{Attributes, check_type, kebab};

/// The implementation of `tidegate::Job` for a type.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    check_type(input)?;
    let given = Attributes::read(input)?;
    let kind = match given.kind {
        Some(kind) => kind,
        None => kebab(input)?,
    };
    let queue = given.queue.as_deref().unwrap_or("default");
    let timeout = given.timeout_ms.map(|ms| quote!(settings.timeout_ms = #ms;));
    let priority = given.priority.map(|p| {
        let name = quote::format_ident!("{}", capital(&p));
        quote!(settings.priority = ::tidegate::Priority::#name;)
    });
    let attempts =
        given.max_attempts.map(|n| quote!(settings.max_attempts = ::core::option::Option::Some(#n);));
    let retry = given.retry.map(|name| {
        quote! {
            settings.retry = ::tidegate::RetryPolicy::named(#name);
            settings.policy = ::core::option::Option::Some(#name.into());
        }
    });
    let connector = given.connector.map(|name| {
        quote!(settings.connector = ::core::option::Option::Some(::tidegate::ConnectorName::new(#name)?);)
    });
    let description = given.description.map(|text| quote!(settings.description = #text.into();));
    let ident = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::tidegate::Job for #ident {
            const KIND: &'static str = #kind;

            fn settings() -> ::tidegate::Result<::tidegate::KindSettings> {
                #[allow(unused_mut)]
                let mut settings = ::tidegate::KindSettings::new(::tidegate::QueueName::new(#queue)?);
                #timeout
                #priority
                #attempts
                #retry
                #connector
                #description
                ::core::result::Result::Ok(settings)
            }
        }
    })
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String> {
        Ok(expand(&syn::parse_str(text).unwrap())?.to_string().replace(' ', ""))
    }

    #[test]
    fn every_attribute_reaches_the_settings() {
        let text = expanded(
            r#"#[job(kind = "invoice.send", queue = "billing", timeout = "45s", priority = "high", max_attempts = 5)]
               #[job(retry = "webhook", connector = "shopify", description = "Sends it")]
               struct SendInvoice { order: u64 }"#,
        )
        .unwrap();
        for part in [
            "KIND:&'staticstr=\"invoice.send\"",
            "\"billing\"",
            "timeout_ms=45000i64",
            "Priority::High",
            "max_attempts=::core::option::Option::Some(5u32)",
            "named(\"webhook\")",
            "\"shopify\"",
            "\"Sendsit\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_bad_attribute_is_an_error_that_says_why() {
        for (attribute, why) in [
            (r#"kind = "a b""#, "' '"),
            (r#"kind = """#, "empty"),
            (r#"queue = "../x""#, "must start"),
            (r#"timeout = "soon""#, "not a span"),
            (r#"timeout = "30d""#, "7 days"),
            (r#"priority = "urgent""#, "expected critical"),
            (r#"retry = "often""#, "expected standard"),
            ("max_attempts = 0", "between 1 and 100"),
            ("max_attempts = 1000", "between 1 and 100"),
            (r#"colour = "red""#, "unknown attribute"),
            (r#"kind = "a", kind = "b""#, "twice"),
            ("kind = 7", "string"),
        ] {
            let error = expanded(&format!("#[job({attribute})] struct A;")).unwrap_err().to_string();
            assert!(error.contains(why), "{attribute}: {error}");
        }
        assert!(expanded("struct A<T>(T);").unwrap_err().to_string().contains("generic"));
    }
}
