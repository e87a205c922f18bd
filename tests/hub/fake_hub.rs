//! A tiny HTTP server that answers as a hub does, for one model and one dataset of the same name and files.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use sha2::{Digest, Sha256};

/// How the server misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Not at all.
    Well,
    /// The next body ends after this many bytes, later ones are whole.
    CutOnce(usize),
    /// Every body of more than one byte ends at once.
    CutAlways,
    /// The second half of every large body is not what the hash says.
    Corrupt,
    /// Takes the connection and says nothing.
    Silent,
}

/// What the server holds, shared with its thread.
pub(crate) struct FakeHub {
    pub(crate) endpoint: String,
    pub(crate) repository: &'static str,
    pub(crate) commit: &'static str,
    /// Only this token is let in.
    pub(crate) token: Option<&'static str>,
    files: BTreeMap<String, Vec<u8>>,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<String>>,
}

impl FakeHub {
    pub(crate) fn start(files: &[(&str, &[u8])], token: Option<&'static str>, mood: Mood) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = Arc::new(Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            repository: "owner/name",
            commit: "0123abcd",
            token,
            files: files.iter().map(|(name, body)| ((*name).to_owned(), body.to_vec())).collect(),
            mood: Mutex::new(mood),
            requests: Mutex::default(),
        });
        let serving = Arc::clone(&hub);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = Arc::clone(&serving);
                thread::spawn(move || hub.answer(stream));
            }
        });
        hub
    }

    /// Path and byte range of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let Some(request) = lines.next() else { return }; // a mere connection attempt
        let headers = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>();
        let header = |name: &str| {
            headers.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let range = header("range").unwrap_or_default();
        self.requests.lock().unwrap().push(format!("{path} {range}"));
        if *self.mood.lock().unwrap() == Mood::Silent {
            thread::sleep(std::time::Duration::from_secs(5));
            return;
        }
        if self.token.is_some_and(|token| header("authorization") != Some(format!("Bearer {token}"))) {
            return plain(&mut stream, "401 Unauthorized", "who asks?");
        }
        let revisions = ["main", self.commit];
        let is_listing = |kind: &str| {
            let of = |revision| format!("/api/{kind}/{}/revision/{revision}", self.repository);
            revisions.map(of).contains(&path)
        };
        if is_listing("models") || is_listing("datasets") {
            let siblings =
                self.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect::<Vec<_>>();
            let body = serde_json::json!({"sha": self.commit, "siblings": siblings}).to_string();
            return plain(&mut stream, "200 OK", &body);
        }
        let file = revisions.iter().find_map(|revision| {
            let path = path.strip_prefix("/datasets").unwrap_or(&path);
            let name = path.strip_prefix(&format!("/{}/resolve/{revision}/", self.repository))?;
            self.files.get_key_value(name)
        });
        match file {
            Some((name, body)) => self.send(&mut stream, name, body, &range),
            None => plain(&mut stream, "404 Not Found", "no such thing"),
        }
    }

    fn send(&self, stream: &mut TcpStream, name: &str, body: &[u8], range: &str) {
        let (start, end) =
            range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
        let start = start.parse::<usize>().unwrap();
        let end = end.parse::<usize>().map_or(body.len(), |last| last + 1);
        if start >= body.len() {
            return plain(stream, "416 Range Not Satisfiable", "");
        }
        let mut part = body[start..end].to_vec();
        let hash = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let etag = if name.ends_with(".json") { &hash[..40] } else { &hash };
        let _ = write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {}\r\nContent-Length: {}\r\n\
             Content-Range: bytes {start}-{}/{}\r\nConnection: close\r\n\r\n",
            self.commit,
            part.len(),
            end - 1,
            body.len()
        );
        let mut mood = self.mood.lock().unwrap();
        if part.len() > 1 {
            match *mood {
                Mood::CutOnce(at) => {
                    part.truncate(at);
                    *mood = Mood::Well;
                }
                Mood::CutAlways => part.clear(),
                Mood::Corrupt => part.iter_mut().skip(1000).for_each(|byte| *byte ^= 1),
                Mood::Well | Mood::Silent => {}
            }
        }
        let _ = stream.write_all(&part);
    }
}

fn plain(stream: &mut TcpStream, status: &str, body: &str) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}
