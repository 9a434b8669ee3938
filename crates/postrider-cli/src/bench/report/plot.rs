//! Plots as SVG, drawn without any font of the system.

use anyhow::Result;
use plotters::prelude::*;

use super::OnDatabase;
use super::figure::{RATE, ratio};
use crate::bench::measure::Side;
use crate::bench::meter::Latency;

const WIDTH: u32 = 860;
const LINE: u32 = 26;
const OURS: RGBColor = RGBColor(31, 119, 180);
const BARE: RGBColor = RGBColor(170, 170, 170);
/// What latency plots have on their axis.
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

/// A bar per scenario: the rate as a part of what bare SQL reaches; nothing if no scenario has one.
pub fn ratios(on: &OnDatabase) -> Result<Option<String>> {
    let of_rate = on.scenarios.iter().filter(|of| !of.scenario.kind.is_of_latency());
    let bars: Vec<(&str, f64)> = of_rate
        .filter_map(|of| Some((of.scenario.name.as_str(), ratio(&of.rounds, Side::Bare, &RATE)?.median)))
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let (most, lines) = (bars.iter().map(|bar| bar.1).fold(1.2, f64::max), bars.len() as f64);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 90 + LINE * bars.len() as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                format!("messages a second on {}, as a part of bare SQL's", on.server.database),
                ("sans-serif", 16),
            )
            .margin(12)
            .x_label_area_size(28)
            .build_cartesian_2d(0.0..most * 1.05, 0.0..lines)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().max_light_lines(1).x_labels(8).draw()?;
        // The first scenario stands at the top.
        let place = |at: usize| lines - at as f64 - 0.5;
        chart.draw_series(bars.iter().enumerate().map(|(at, (_, ratio))| {
            Rectangle::new([(0.0, place(at) - 0.38), (*ratio, place(at) + 0.38)], OURS.mix(0.55).filled())
        }))?;
        chart.draw_series(bars.iter().enumerate().map(|(at, (name, ratio))| {
            Text::new(format!("{name}  {ratio:.2}"), (most * 0.01, place(at) + 0.22), ("sans-serif", 13))
        }))?;
        let whole = PathElement::new(vec![(1.0, 0.0), (1.0, lines)], BLACK.stroke_width(1));
        chart.draw_series(std::iter::once(whole))?;
        root.present()?;
    }
    Ok(Some(svg))
}

/// A line per scenario and side over the percentiles; nothing if no scenario has them.
pub fn latencies(on: &OnDatabase) -> Result<Option<String>> {
    let mut lines = Vec::new();
    for of in &on.scenarios {
        for side in [Side::Ours, Side::Bare] {
            let all = of.rounds.iter().filter_map(|round| round.get(&side)?.latency);
            if let Some(latency) = middle(all.collect()) {
                lines.push((of.scenario.name.clone(), side, latency));
            }
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let all = || lines.iter().flat_map(|line| points(&line.2)).map(|point| point.1);
    let (least, most) = (all().fold(f64::MAX, f64::min).max(0.01), all().fold(0.1, f64::max));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(format!("latency on {} in ms (grey: bare SQL that polls)", on.server.database), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(28)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..5.2_f64, (least * 0.8..most * 1.3).log_scale())?;
        let name = |x: &f64| {
            PERCENTILES.get(*x as usize).filter(|_| x.fract() == 0.0).map_or(String::new(), |name| (*name).into())
        };
        chart.configure_mesh().max_light_lines(1).x_labels(6).x_label_formatter(&name).draw()?;
        for (at, (scenario, side, latency)) in lines.iter().enumerate() {
            let colour = if *side == Side::Ours { Palette99::pick(at / 2).to_rgba() } else { BARE.to_rgba() };
            chart.draw_series(std::iter::once(PathElement::new(points(latency), colour.stroke_width(2))))?;
            if *side == Side::Ours {
                let end = (4.05, latency.max);
                chart.draw_series(std::iter::once(Text::new(
                    scenario.clone(),
                    end,
                    ("sans-serif", 12).into_font().color(&colour),
                )))?;
            }
        }
        root.present()?;
    }
    Ok(Some(svg))
}

fn points(latency: &Latency) -> Vec<(f64, f64)> {
    let values = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
    values.iter().enumerate().map(|(at, value)| (at as f64, value.max(0.01))).collect()
}

/// The round with the middle median.
fn middle(mut rounds: Vec<Latency>) -> Option<Latency> {
    rounds.sort_by(|one, other| one.p50.total_cmp(&other.p50));
    rounds.get(rounds.len() / 2).copied()
}
