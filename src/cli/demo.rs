//! demo
/// Demo
#[derive(clap::Args, Debug)]
pub(super) struct DemoArgs {}
pub(super) fn run(_args: &DemoArgs) -> anyhow::Result<()> {
    Ok(())
}
