//! Time limits around blocking network calls that have none of their own.
//!
//! A call runs on its own thread and reports bytes; when it falls silent the caller goes on with an error.
//! The thread is left to end by itself: it only ever writes hf-hub's resumable part files.

use std::{
    net::{TcpStream, ToSocketAddrs},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use hf_hub::api::Progress;
use indicatif::ProgressBar;

use super::{HubError, HubSettings};

/// Why there is no outcome.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Silence {
    /// No news for this long.
    #[error("nothing arrived for {0:?}")]
    Stalled(Duration),
    /// The call panicked; the panic's own message is on stderr.
    #[error("the download client crashed")]
    Crashed,
}

enum Event<T> {
    Size(u64),
    Bytes(u64),
    Done(T),
}

/// Passes hf-hub's progress to the waiting thread.
pub(super) struct Watch {
    send: Box<dyn Fn(Option<u64>, u64) + Send>,
    announced: Arc<Mutex<Option<u64>>>,
}

impl Watch {
    /// The size of the file in bytes, once the hub has said it.
    pub(super) fn announced(&self) -> Arc<Mutex<Option<u64>>> {
        Arc::clone(&self.announced)
    }
}

impl Progress for Watch {
    fn init(&mut self, size: usize, _filename: &str) {
        if let Ok(mut announced) = self.announced.lock() {
            *announced = Some(size as u64);
        }
        (self.send)(Some(size as u64), 0);
    }

    fn update(&mut self, size: usize) {
        (self.send)(None, size as u64);
    }

    fn finish(&mut self) {}
}

/// Runs `job` on its own thread and moves `bar`; gives up after `settings.silence` without news.
pub(super) fn run<T: Send + 'static>(
    settings: &HubSettings,
    bar: &ProgressBar,
    job: impl FnOnce(Watch) -> T + Send + 'static,
) -> Result<T, Silence> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let events: Sender<Event<T>> = sender.clone();
        // A send fails only when the waiting side has given up: then nobody wants to know.
        let send = Box::new(move |size: Option<u64>, bytes| {
            let _ = events.send(size.map_or(Event::Bytes(bytes), Event::Size));
        });
        let done = job(Watch { send, announced: Arc::default() });
        let _ = sender.send(Event::Done(done));
    });
    loop {
        match receiver.recv_timeout(settings.silence) {
            Ok(Event::Size(size)) => {
                bar.set_length(size);
                bar.set_position(0);
            }
            Ok(Event::Bytes(bytes)) => bar.inc(bytes),
            Ok(Event::Done(done)) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => return Err(Silence::Stalled(settings.silence)),
            Err(RecvTimeoutError::Disconnected) => return Err(Silence::Crashed),
        }
    }
}

/// Tries to reach the host of `url` within `settings.connect`, so that no network is noticed in seconds.
///
/// Not tried behind a proxy: there the host itself is rightly out of reach.
pub(super) fn connect(url: &str, settings: &HubSettings) -> Result<(), HubError> {
    let Some(address) = address_of(url).filter(|_| !settings.behind_proxy) else { return Ok(()) };
    let limit = settings.connect;
    let (sender, receiver) = mpsc::channel();
    let host = address.clone();
    // Resolving a name cannot be given a limit either, hence the thread.
    thread::spawn(move || {
        let _ = sender.send(try_each(&host, limit));
    });
    let unreachable = |reason: String| HubError::Unreachable { address, reason };
    match receiver.recv_timeout(limit) {
        Ok(outcome) => outcome.map_err(unreachable),
        Err(_) => Err(unreachable(format!("no answer within {limit:?}"))),
    }
}

fn try_each(address: &str, limit: Duration) -> Result<(), String> {
    let mut last = "the name has no address".to_owned();
    for socket in address.to_socket_addrs().map_err(|error| error.to_string())? {
        match TcpStream::connect_timeout(&socket, limit) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// `host:port` of a URL.
fn address_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let has_port =
        host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    Some(if has_port { host.to_owned() } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::PathBuf, time::Instant};

    fn goes_well() -> bool {
        false
    }

    fn settings() -> HubSettings {
        HubSettings {
            cache_dir: PathBuf::from("unused"),
            endpoint: None,
            token: None,
            behind_proxy: false,
            connect: Duration::from_millis(300),
            silence: Duration::from_secs(1),
        }
    }

    #[test]
    fn addresses_are_read_from_urls() {
        for (url, address) in [
            ("https://hub.example.org/a/b", Some("hub.example.org:443")),
            ("http://127.0.0.1:8080/x", Some("127.0.0.1:8080")),
            ("http://hub.example.org", Some("hub.example.org:80")),
            ("https://user:word@hub.example.org:99/", Some("hub.example.org:99")),
            ("https://[::1]/x", Some("[::1]:443")),
            ("https://[::1]:7/x", Some("[::1]:7")),
            ("hub.example.org", None),
        ] {
            assert_eq!(address_of(url).as_deref(), address, "{url}");
        }
    }

    #[test]
    fn a_silent_call_is_given_up_and_a_slow_one_is_not() {
        let started = Instant::now();
        let bar = ProgressBar::hidden();
        let stuck = run(&settings(), &bar, |_| thread::sleep(Duration::from_secs(5)));
        assert_eq!(stuck, Err(Silence::Stalled(settings().silence)));
        assert!(started.elapsed() < Duration::from_secs(4));

        let crashed = run(&settings(), &bar, |_| assert!(goes_well(), "a crash that this test wants"));
        assert_eq!(crashed, Err(Silence::Crashed));

        let slow = run(&settings(), &bar, |mut watch| {
            watch.init(8, "file");
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(200));
                watch.update(1);
            }
            *watch.announced().lock().unwrap()
        });
        assert_eq!(slow.unwrap(), Some(8));
        assert_eq!((bar.length(), bar.position()), (Some(8), 8));
    }

    #[test]
    fn a_closed_port_is_told_with_its_address() {
        // Bound and released: nothing listens there now.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/x");
        let error = connect(&url, &settings()).unwrap_err();
        assert!(
            matches!(&error, HubError::Unreachable { address, .. } if *address == format!("127.0.0.1:{port}"))
        );
        assert!(connect(&url, &HubSettings { behind_proxy: true, ..settings() }).is_ok());
    }
}
