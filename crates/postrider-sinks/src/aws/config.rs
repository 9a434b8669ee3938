//! Region, endpoint and credentials, and the limits of both sinks.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sdk::config::Credentials;
use crate::problem::ConfigProblem;
use crate::setting::Secret;

/// How to get into AWS. What is not given here is looked for where Amazon's own tools look: variables of the environment,
/// the shared files, the role of the container or machine.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AwsConfig {
    /// The region, such as `eu-central-1`.
    pub region: Option<String>,
    /// Another address of the service, such as that of a private endpoint or of an emulator. With `http://` nothing is
    /// encrypted.
    pub endpoint: Option<String>,
    /// The profile in the shared files.
    pub profile: Option<String>,
    /// The id of an access key, if it is not to be looked for.
    pub access_key_id: Option<Secret>,
    /// The secret of that key.
    pub secret_access_key: Option<Secret>,
    /// The session token that belongs to a temporary key.
    pub session_token: Option<Secret>,
}

const LONGEST: Duration = Duration::from_secs(3_600);

impl AwsConfig {
    /// What cannot work.
    pub(crate) fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = Vec::from_iter(self.endpoint.as_deref().and_then(endpoint_problem));
        if self.region.as_ref().is_some_and(|region| region.is_empty()) {
            found.push(ConfigProblem::new("aws.region", "it is empty; write for example eu-central-1, or remove it"));
        }
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(_), None) => {
                found.push(ConfigProblem::new(
                    "aws.secret_access_key",
                    "there is an access_key_id without it; give both",
                ));
            }
            (None, Some(_)) => {
                found.push(ConfigProblem::new(
                    "aws.access_key_id",
                    "there is a secret_access_key without it; give both",
                ));
            }
            (None, None) if self.session_token.is_some() => {
                found.push(ConfigProblem::new("aws.session_token", "it needs access_key_id and secret_access_key"));
            }
            (Some(_), Some(_)) if self.profile.is_some() => {
                found.push(ConfigProblem::new("aws.profile", "there is an access key as well; choose one"));
            }
            _ => {}
        }
        found
    }

    /// What the client of a service is made from. The library makes no second attempt by itself: it would not be told
    /// apart from a second message.
    pub(crate) async fn load(&self, connect_timeout: Duration) -> SdkConfig {
        let timeouts = TimeoutConfig::builder().connect_timeout(connect_timeout).build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts);
        if let Some(region) = &self.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let (Some(id), Some(secret)) = (&self.access_key_id, &self.secret_access_key) {
            let token = self.session_token.as_ref().map(|token| token.expose().to_owned());
            loader =
                loader.credentials_provider(Credentials::new(id.expose(), secret.expose(), token, None, "settings"));
        }
        loader.load().await
    }
}

/// What is wrong with an address.
fn endpoint_problem(text: &str) -> Option<ConfigProblem> {
    let problem = |what: &str| Some(ConfigProblem::new("aws.endpoint", what));
    match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => problem("it begins with neither https:// nor http://"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            problem("it has a user or password in it; put credentials into access_key_id and secret_access_key")
        }
        Ok(url) if url.host_str().is_some() => None,
        _ => problem("it is no address; write for example https://sqs.eu-central-1.amazonaws.com"),
    }
}

/// Limits that both sinks have.
pub(crate) struct Limits {
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_batch: usize,
    pub(crate) max_message_size: usize,
    pub(crate) largest_message: usize,
}

impl Limits {
    pub(crate) fn problems(&self) -> Vec<ConfigProblem> {
        let alone = [("connect_timeout", self.connect_timeout), ("timeout", self.timeout)];
        let bad = alone.into_iter().filter(|(_, time)| time.is_zero() || *time > LONGEST);
        let what = "it must be longer than nothing and at most one hour";
        let mut found: Vec<_> = bad.map(|(field, _)| ConfigProblem::new(field, what)).collect();
        if found.is_empty() && self.connect_timeout > self.timeout {
            let what = "it is longer than timeout, which covers the whole publish; make it shorter";
            found.push(ConfigProblem::new("connect_timeout", what));
        }
        for (field, given, most) in
            [("max_batch", self.max_batch, 1_000), ("max_message_size", self.max_message_size, self.largest_message)]
        {
            if !(1..=most).contains(&given) {
                found.push(ConfigProblem::new(field, format!("{given} is not from 1 to {most}")));
            }
        }
        found
    }
}
