//! The `qrae` command.

fn main() {}
