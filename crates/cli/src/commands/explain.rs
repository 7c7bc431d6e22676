//! `tidegate explain CODE`.

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::codes::{self, Code, Fault};

use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A code such as TG2007; without it all are listed
    code: Option<String>,
}

/// Explains one code, or lists all.
pub(crate) fn run(args: &ExplainArgs, output: &Output) -> Result<()> {
    let Some(wanted) = &args.code else {
        let all: Vec<Value> = codes::ALL.iter().map(facts).collect();
        return output.answer(&json!({ "codes": all }), || list(output));
    };
    let code = codes::find(wanted).ok_or_else(|| {
        let shown: String = wanted.chars().take(40).collect();
        Failure::new(codes::INVALID_REQUEST, format!("{shown:?} is not an error code"))
            .hint("`tidegate explain` lists all codes; they look like TG2007")
    })?;
    output.answer(&facts(&code), || {
        format!(
            "{}: {}.\n\nWhose failure: {} (exit code {}).\nWhat to do: {}.\n",
            output.style.bold(code.id),
            code.title,
            whose(code.fault),
            code.fault.exit_code(),
            code.hint
        )
    })
}

fn facts(code: &Code) -> Value {
    json!({
        "code": code.id,
        "title": code.title,
        "hint": code.hint,
        "fault": code.fault,
        "exit_code": code.fault.exit_code(),
    })
}

fn list(output: &Output) -> String {
    let mut table =
        Table::new(vec![Column::fixed("CODE"), Column::number("EXIT"), Column::text("MEANING", 20)]);
    for code in codes::ALL {
        table.row(vec![code.id.into(), code.fault.exit_code().to_string(), code.title.into()]);
    }
    table.render(output)
}

fn whose(fault: Fault) -> &'static str {
    match fault {
        Fault::Ours => "ours; please report it",
        Fault::Usage => "the request cannot be right",
        Fault::NotFound => "what was named does not exist",
        Fault::State => "the request is fine, the state does not allow it",
        Fault::Unreachable => "the store is out of reach",
    }
}
