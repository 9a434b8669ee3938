//! Which scenarios were meant: names and patterns of them.

use wildmatch::WildMatch;

use super::scenario::{Scenario, all};
use crate::config::nearest;
use crate::exit::Failure;

/// The scenarios that were named, in the order of the table; without a name the default set.
pub fn chosen(names: &[String], quick: bool) -> Result<Vec<Scenario>, Failure> {
    let known = all();
    for name in names {
        let pattern = WildMatch::new(name);
        if !known.iter().any(|scenario| pattern.matches(&scenario.name)) {
            return Err(unknown(name, &known));
        }
    }
    let named = |scenario: &Scenario| names.iter().any(|name| WildMatch::new(name).matches(&scenario.name));
    // A quick run has nothing long in it.
    let wanted = |scenario: &Scenario| if names.is_empty() { quick || !scenario.long } else { named(scenario) };
    let chosen = known.into_iter().filter(wanted);
    Ok(if quick { chosen.map(Scenario::quick).collect() } else { chosen.collect() })
}

fn unknown(name: &str, known: &[Scenario]) -> Failure {
    let near = nearest(name, known.iter().map(|scenario| scenario.name.as_str()));
    let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    Failure::usage(format!("there is no scenario {name:?}{hint} `postrider bench list` shows all of them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str], quick: bool) -> Vec<String> {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        chosen(&wanted, quick).expect("known names").into_iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn a_pattern_names_several() {
        assert_eq!(names(&["idle-*", "drain-1m"], false), ["drain-1m", "idle-50", "idle-100"]);
    }

    #[test]
    fn what_is_long_is_run_if_it_is_named_or_made_small() {
        let is_there = |names: &[String]| names.iter().any(|name| name == "history-10m");
        assert!(!is_there(&names(&[], false)));
        assert!(is_there(&names(&[], true)));
        assert!(is_there(&names(&["*"], false)));
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_one() {
        let refused = chosen(&["drain-kep".into()], false).expect_err("unknown").to_string();
        assert!(refused.contains("drain-keep"), "{refused}");
    }

    #[test]
    fn every_sink_is_in_the_default_set() {
        let sinks = names(&["sink-*"], false);
        let default = names(&[], false);
        assert!(sinks.len() == 10 && sinks.iter().all(|sink| default.contains(sink)), "{sinks:?}");
    }
}
