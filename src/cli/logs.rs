//! The log on stderr: which lines, in which form, and panics among them.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::PanicHookInfo,
};

use tracing_subscriber::EnvFilter;

use super::{Command, args::LogFormat};

/// All of a server's news, of other commands only warnings; `RUST_LOG` says otherwise.
pub(super) fn start(command: &Command) -> anyhow::Result<()> {
    let (default, format) = match command {
        Command::Serve(args) => ("info", args.log_format),
        _ => ("warn", LogFormat::Text),
    };
    let filter = EnvFilter::builder().parse(std::env::var("RUST_LOG").unwrap_or_else(|_| default.into()))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(console::colors_enabled_stderr()).init(),
        LogFormat::Json => logs.json().init(),
    }
    if matches!(command, Command::Serve(_)) {
        std::panic::set_hook(Box::new(panicked));
    }
    Ok(())
}

/// Puts a panic into the log of a server: inside the span of the request it is about, and in the form of all other lines.
/// What it says may quote a request, so that is told at level debug only.
fn panicked(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(String::new, ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(place, thread, backtrace, "a panic: this is a bug");
    let said = panic.payload_as_str().unwrap_or_default();
    tracing::debug!(place, said, "what the panic said");
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_a_line_with_its_place_in_its_requests_span_and_does_not_quote() {
        let (me, others) = (thread::current().id(), take_hook());
        set_hook(Box::new(
            move |panic| {
                if thread::current().id() == me { panicked(panic) } else { others(panic) }
            },
        ));
        let log = |filter: &str| {
            let buffer = Buffer::default();
            let made = buffer.clone();
            let logs = tracing_subscriber::fmt().json().with_env_filter(filter);
            tracing::subscriber::with_default(logs.with_writer(move || made.clone()).finish(), || {
                let span = tracing::error_span!("request", request_id = "r-1");
                let slice = |text: &str, end: usize| text[..end].len();
                let outcome = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| slice("se\u{e9}cret", 3))));
                assert!(outcome.is_err(), "not on a character's border");
            });
            let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
        };
        let lines = log("error");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((&lines[0]["level"], &lines[0]["span"]["request_id"]), (&"ERROR".into(), &"r-1".into()));
        assert!(lines[0]["fields"]["place"].as_str().unwrap().contains("logs.rs"), "{lines:?}");
        assert!(!lines[0].to_string().contains("cret"), "{lines:?}");
        assert!(log("debug")[1]["fields"]["said"].as_str().unwrap().contains("cret"));
    }
}
