//! `tidegate why JOB`.

use clap::Args;

use super::facts;
use crate::config::Config;
use crate::data;
use crate::error::Result;
use crate::output::{Output, clean};
use crate::parse;

/// Arguments of `why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Id of the job
    job: String,
}

/// Explains one job.
pub(crate) async fn run(args: WhyArgs, config: &Config, output: &Output) -> Result<()> {
    let id = parse::job_id(&args.job)?;
    let data = data::existing(config).await?;
    let now = parse::now();
    let why = data.store.why(id, now).await?;
    let sentence = clean(&why.sentence(now));
    let mut value = facts(&why)?;
    value["id"] = id.to_string().into();
    value["sentence"] = sentence.clone().into();
    data.close().await?;
    output.answer(&value, || sentence)
}
