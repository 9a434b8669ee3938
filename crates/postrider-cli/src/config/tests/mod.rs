//! The configuration as an operator meets it.

mod accepted;
mod changelog;
mod environment;
mod layout;
mod noise;
mod places;
mod reference;
mod refused;
mod secrets;
mod tenants;
mod warned;

use super::environment::Variable;
use super::problem::{Problem, Refused};
use super::{Loaded, load_text};

/// The least that works; it ends inside of `[source.shop]`, on line 6.
const BASE: &str = "\
[sink.out]
type = \"stdout\"
[[route]]
sink = \"out\"
[source.shop]
url = \"sqlite:shop.db\"
";

/// Variables as the process would have them.
fn given(variables: &[(&str, &str)]) -> impl Iterator<Item = Variable> {
    variables.iter().map(|(name, value)| (name.to_string(), Some(value.to_string())))
}

/// Loads the text of a file called `f`.
fn load(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, Refused> {
    load_text("f", text, false, given(variables))
}

/// All that is wrong, as it is printed.
fn refusal(text: &str, variables: &[(&str, &str)]) -> String {
    load(text, variables).map(|_| String::new()).unwrap_or_else(|refused| refused.to_string())
}

/// The warnings, as they are printed.
fn warnings(text: &str) -> Vec<String> {
    load(text, &[]).expect("accepted").warnings.iter().map(Problem::to_string).collect()
}
