//! Which scenarios were meant: names and patterns of them.

use wildmatch::WildMatch;

use super::scenario::{Kind, Scenario, all};
use crate::config::nearest;
use crate::exit::Failure;

/// The scenarios that were named, in the order of the table; without a name the default set. `with_sink` says whether there
/// is a sink to measure.
pub fn chosen(names: &[String], quick: bool, with_sink: bool) -> Result<Vec<Scenario>, Failure> {
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
    if !with_sink && names.iter().any(|name| name == "sink") {
        return Err(Failure::usage("which sink? Give its address with --sink"));
    }
    let chosen = known.into_iter().filter(|scenario| wanted(scenario) && (with_sink || scenario.kind != Kind::Sink));
    Ok(match quick {
        true => chosen.map(|scenario| Scenario { with: scenario.with.quick(), ..scenario }).collect(),
        false => chosen.collect(),
    })
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
        chosen(&wanted, quick, false).expect("known names").into_iter().map(|scenario| scenario.name).collect()
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
        let refused = chosen(&["drain-kep".into()], false, false).expect_err("unknown").to_string();
        assert!(refused.contains("drain-keep"), "{refused}");
    }

    #[test]
    fn the_sink_needs_an_address() {
        assert!(chosen(&["sink".into()], false, false).is_err());
        assert!(!names(&["*"], false).contains(&"sink".to_owned()));
        assert_eq!(chosen(&["sink".into()], false, true).expect("a sink").len(), 1);
    }
}
