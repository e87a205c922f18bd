//! The `qrae` command.

fn main() -> std::process::ExitCode {
    qrae::cli::main()
}
