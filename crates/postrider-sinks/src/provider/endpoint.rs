//! One address of a provider's API: requests and answers, the same for all adapters.
//!
//! Connections are those of the sink `http`: only public addresses unless others are allowed, certificates are
//! verified, redirects are not followed, proxies are not used, and nothing is unpacked. The address may hold a token
//! (Telegram's does), so it is in no error and is never printed.

use std::fmt;
use std::time::{Duration, SystemTime};

use postrider_core::{Destination, Outcome, Sink};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use url::Url;

use crate::http::outcome::{of_error, wait};
use crate::http::{HttpClient, HttpSink};
use crate::problem::ConfigProblem;
use crate::setting::Secret;

/// How many bytes of an answer are read. Answers repeat the message, and the longest of those has 40,000 characters.
const LONGEST_ANSWER: usize = 1024 * 1024;

/// Where an API is, and how to get there.
pub(super) struct Endpoint {
    http: HttpSink,
    base: Url,
    headers: HeaderMap,
}

/// What a provider answered.
pub(super) struct Answer {
    pub status: StatusCode,
    pub retry_after: Option<Duration>,
    /// The body, if it is JSON and came completely.
    pub body: Option<Value>,
}

impl Endpoint {
    /// An endpoint below a base address. `field` is what the operator wrote the address in.
    pub(super) fn new(
        client: &HttpClient,
        field: &str,
        base: &str,
        token: Option<&Secret>,
    ) -> Result<Self, ConfigProblem> {
        let http = client.sink(destination(field, base)?).map_err(|problem| named(problem, field))?;
        let slash = if base.ends_with('/') { "" } else { "/" };
        let base = Url::parse(&format!("{base}{slash}")).map_err(|_| ConfigProblem::new(field, NO_URL))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("postrider/", env!("CARGO_PKG_VERSION"))));
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {}", token.expose()));
            let mut value = value.map_err(|_| ConfigProblem::new(field, "the token beside it is no header value"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { http, base, headers })
    }

    /// Posts JSON to a path below the base. An error is what becomes of a message that got no answer.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Outcome> {
        // Not `join`: what comes before the colon of Telegram's token would be a scheme.
        let url = Url::parse(&format!("{}{path}", self.base));
        let url = url.map_err(|_| Outcome::Unsendable("its address is no URL".into()))?;
        let request = self.http.way.client.post(url).headers(self.headers.clone()).body(body.to_string());
        let response = request.send().await.map_err(|error| of_error(&error))?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| wait(text, SystemTime::now()));
        Ok(Answer { status: response.status(), retry_after, body: read(response).await })
    }

    /// Whether somebody takes connections there.
    pub(super) async fn ready(&self) -> Result<(), String> {
        self.http.ready().await
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.http.fmt(f)
    }
}

const NO_URL: &str = "it is no URL; write it like https://api.example.com";

/// Checks a base address without connecting to it.
pub(super) fn destination(field: &str, base: &str) -> Result<Destination, ConfigProblem> {
    let parsed = base.parse::<Destination>().ok().filter(|base| base.is_fixed());
    let destination = parsed.ok_or_else(|| ConfigProblem::new(field, NO_URL))?;
    match base.contains('?') {
        true => Err(ConfigProblem::new(field, "it has a query; write only scheme, host and path")),
        false => Ok(destination),
    }
}

/// The sink `http` calls an address a destination.
pub(super) fn named(problem: ConfigProblem, field: &str) -> ConfigProblem {
    match problem.field.as_str() {
        "destination" => ConfigProblem::new(field, problem.what),
        _ => problem,
    }
}

/// The whole body, unless it is too long, breaks off or is not JSON.
async fn read(mut response: Response) -> Option<Value> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if bytes.len() + chunk.len() > LONGEST_ANSWER {
            return None;
        }
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).ok()
}
