//! The changelog over HTTP: pages, and a stream that does not end.
//!
//! Readers share the connections of the relay, so only a few of their questions are asked at a time. A stream reads a few
//! entries when its client has taken the last ones. A slow client costs the memory of those, or of its page; so there are
//! only so many answers at a time, and who takes nothing for a minute is let go.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::stream::{self, Stream};
use postrider_changelog::{After, ChangelogError, Cursor, DEFAULT_LIMIT, Entry, Page, Reader};
use postrider_sinks::setting::Secret;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::health::Current;
use super::feed::{self, CLIENT_PATIENCE};
use crate::config::Changelog;

/// The most streams at a time, of all sources together.
const MOST_STREAMS: usize = 64;
/// The most pages at a time that are read, or wait for their clients to take them, of all sources together.
const MOST_PAGES: usize = 16;
/// How many entries a stream reads at a time.
const STREAM_PAGE: u32 = 16;
/// The most questions to a database at a time.
const MOST_READS: usize = 2;
/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// After which silence a stream says how far it is, so that a client that is gone is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A changelog that can be read over HTTP.
pub struct Served {
    reader: Arc<dyn Reader>,
    token: Option<Secret>,
    poll_interval: Duration,
    reads: Semaphore,
    stop: CancellationToken,
}

impl Served {
    pub fn new(reader: Arc<dyn Reader>, settings: &Changelog, stop: CancellationToken) -> Self {
        Self {
            reader,
            token: settings.token.clone(),
            poll_interval: settings.poll_interval,
            reads: Semaphore::new(MOST_READS),
            stop,
        }
    }

    async fn read(&self, after: After, limit: u32) -> Result<Page, ChangelogError> {
        let read = async {
            let _turn = self.reads.acquire().await;
            self.reader.list(after, limit).await
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|elapsed| Err(ChangelogError::Unavailable(Box::new(elapsed))))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
        given.is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case(b"bearer ") && is_same(token.expose().as_bytes(), given)
        })
    }
}

/// Compares in a time that tells nothing of where two texts differ.
fn is_same(secret: &[u8], given: &[u8]) -> bool {
    let mut differs = secret.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        differs |= usize::from(black_box(secret.get(at).unwrap_or(&0) ^ byte));
    }
    black_box(differs) == 0
}

#[derive(Clone)]
struct Serving {
    current: Current,
    streams: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

/// `/changelog/{source}` and `/changelog/{source}/stream`.
pub fn router(current: Current) -> Router {
    let (streams, pages) = (Arc::new(Semaphore::new(MOST_STREAMS)), Arc::new(Semaphore::new(MOST_PAGES)));
    Router::new()
        .route("/changelog/{source}", get(page))
        .route("/changelog/{source}/stream", get(follow))
        .with_state(Serving { current, streams, pages })
}

/// Why nothing is answered.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.0, Json(json!({ "error": self.1 }))).into_response();
        if self.0 == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ChangelogError> for Refusal {
    fn from(error: ChangelogError) -> Self {
        let status = match &error {
            ChangelogError::Invalid(_) => StatusCode::BAD_REQUEST,
            ChangelogError::OtherStore { .. } | ChangelogError::LostHistory(_) => StatusCode::CONFLICT,
            error if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl Serving {
    /// The changelog of a source, for who may read it. A source that is not served is as good as none.
    fn find(&self, source: &str, headers: &HeaderMap) -> Result<Arc<Served>, Refusal> {
        let generation = self.current.generation();
        let line = generation.lines.iter().find(|line| line.name == source);
        let Some(served) = line.and_then(|line| line.served.clone()) else {
            return Err(Refusal(StatusCode::NOT_FOUND, "no changelog of such a source is served".into()));
        };
        match served.admits(headers) {
            true => Ok(served),
            false => Err(Refusal(StatusCode::UNAUTHORIZED, "send the token as authorization: Bearer …".into())),
        }
    }
}

/// What was asked for.
struct Asked {
    after: After,
    limit: u32,
}

/// Reads the parameters; of those that are not known none is overlooked.
fn asked(parameters: &BTreeMap<String, String>, known: &[&str]) -> Result<Asked, Refusal> {
    let bad = |said: String| Refusal(StatusCode::BAD_REQUEST, said);
    if let Some(name) = parameters.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(bad(format!("there is no parameter {name:?}; known are {}", known.join(", "))));
    }
    let after = match parameters.get("after").map(String::as_str) {
        None | Some("") => After::Beginning,
        Some(text) => text.parse().map_err(|error| bad(format!("after: {error}")))?,
    };
    let limit = match parameters.get("limit") {
        None => DEFAULT_LIMIT,
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| bad("limit: write a whole number of 1 or more".into()))?
        }
    };
    Ok(Asked { after, limit })
}

type Parameters = Query<BTreeMap<String, String>>;

async fn page(
    State(serving): State<Serving>,
    Path(source): Path<String>,
    Query(parameters): Parameters,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let served = serving.find(&source, &headers)?;
    let asked = asked(&parameters, &["after", "limit"])?;
    let Ok(permit) = serving.pages.clone().try_acquire_owned() else {
        let said = format!("{MOST_PAGES} pages are read already; come again");
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, said));
    };
    let page = served.read(asked.after, asked.limit).await?;
    let text = serde_json::to_vec(&page).map_err(|error| ChangelogError::Failed(Box::new(error)))?;
    drop(page);
    // A client that gets less than this knows that it was let go.
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, text.len().to_string()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    // A page that was read is sent, whether or not the relay stops.
    let body = feed::body(feed::pieces(text), permit, CLIENT_PATIENCE, CancellationToken::new());
    Ok((headers, body).into_response())
}

async fn follow(
    State(serving): State<Serving>,
    Path(source): Path<String>,
    Query(parameters): Parameters,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let served = serving.find(&source, &headers)?;
    let asked = asked(&parameters, &["after"])?;
    let Ok(permit) = serving.streams.clone().try_acquire_owned() else {
        let said = format!("there are {MOST_STREAMS} streams already; come again later, or read pages");
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, said));
    };
    // The first page is read before the answer begins, so that a cursor that is refused has its status.
    let first = served.read(asked.after, STREAM_PAGE).await?;
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    let stop = served.stop.clone();
    let body = feed::body(lines(served, asked.after, first), permit, CLIENT_PATIENCE, stop);
    Ok((headers, body).into_response())
}

/// A line of a stream; without an entry it only says how far the stream is, if that can be said.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<Cursor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a Entry>,
}

struct Following {
    served: Arc<Served>,
    after: After,
    store: Uuid,
    /// What was read and not sent yet.
    entries: VecDeque<Entry>,
    /// What to say before anything else, so that a client knows that it is heard.
    greeting: Option<Cursor>,
    spoken: Instant,
}

/// The lines of a stream, from its first page on.
fn lines(served: Arc<Served>, after: After, first: Page) -> impl Stream<Item = Bytes> + Send {
    let greeting = first.entries.is_empty().then_some(first.next);
    let (store, entries) = (first.store, first.entries.into());
    let start = Following { served, after, store, entries, greeting, spoken: Instant::now() };
    stream::unfold(Some(start), |following| async move {
        let mut following = following?;
        match following.next().await {
            Ok(text) => Some((text.into(), Some(following))),
            // What cannot be read on is told, and is the end.
            Err(error) => Some((format!("{}\n", json!({ "error": error.to_string() })).into(), None)),
        }
    })
}

impl Following {
    /// The next line. While the database does not answer the stream waits and keeps its place.
    async fn next(&mut self) -> Result<String, ChangelogError> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                let cursor = Cursor::at(self.store, &entry);
                self.after = cursor.into();
                return self.say(Some(cursor), Some(&entry));
            }
            if let Some(cursor) = self.greeting.take() {
                return self.say(Some(cursor), None);
            }
            let is_quiet = self.spoken.elapsed() >= HEARTBEAT;
            match self.served.read(self.after, STREAM_PAGE).await {
                Ok(page) if !page.entries.is_empty() => (self.store, self.entries) = (page.store, page.entries.into()),
                Ok(page) if is_quiet => return self.say(Some(page.next), None),
                Err(error) if !error.is_transient() => return Err(error),
                Err(_) if is_quiet => return self.say(None, None),
                _ => sleep(self.served.poll_interval).await,
            }
        }
    }

    fn say(&mut self, cursor: Option<Cursor>, entry: Option<&Entry>) -> Result<String, ChangelogError> {
        self.spoken = Instant::now();
        line(&Line { cursor, entry })
    }
}

fn line(line: &Line) -> Result<String, ChangelogError> {
    let text = serde_json::to_string(line);
    text.map(|text| text + "\n").map_err(|error| ChangelogError::Failed(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_only_if_all_of_it_is() {
        assert!(is_same(b"secret", b"secret"));
        for given in ["", "s", "secre", "secres", "secretsecret", "Secret"] {
            assert!(!is_same(b"secret", given.as_bytes()), "{given}");
        }
        assert!(!is_same(b"", b"x"));
    }

    #[test]
    fn parameters_are_read_strictly() {
        let of = |given: &[(&str, &str)]| {
            let given = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            asked(&given, &["after", "limit"]).map(|asked| asked.limit).map_err(|refusal| refusal.0.as_u16())
        };
        assert_eq!(of(&[]), Ok(DEFAULT_LIMIT));
        assert_eq!(of(&[("after", ""), ("limit", "5")]), Ok(5));
        assert_eq!(of(&[("after", "00000000000000000001ffff")]), Ok(DEFAULT_LIMIT));
        for bad in [("limit", "0"), ("limit", "-1"), ("limit", "x"), ("after", "x"), ("cursor", "x")] {
            assert_eq!(of(&[bad]), Err(400), "{bad:?}");
        }
    }
}
