//! `qrae serve`
use super::args::{EngineArgs, LogFormat, ModelArgs};
/// Serve
#[derive(clap::Args, Debug)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[arg(long, env = "QRAE_LOG_FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
}
pub(super) fn run(_args: &ServeArgs) -> anyhow::Result<()> {
    Ok(())
}
