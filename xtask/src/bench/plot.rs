//! The picture: for each row how much faster than perftest we are, with the spread.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::case::Figure;
use super::report::Row;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 26;
const MARGIN: u32 = 110;

/// Where the scale has a line.
const TICKS: [f64; 13] = [0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 5.0, 20.0];

/// Draws the rows as SVG, on a logarithmic scale on which 1 is perftest and right is better.
///
/// # Errors
///
/// The picture cannot be drawn.
pub(crate) fn draw(rows: &[Row]) -> Result<String> {
    let mut text = String::new();
    {
        let area =
            SVGBackend::with_string(&mut text, (WIDTH, MARGIN + ROW_HEIGHT * rows.len() as u32)).into_drawing_area();
        draw_on(&area, rows).map_err(|error| anyhow!("drawing: {error}"))?;
        area.present().map_err(|error| anyhow!("drawing: {error}"))?;
    }
    Ok(text)
}

/// How much faster than perftest: the least, the median and the most of it.
fn speed(row: &Row) -> Option<[f64; 3]> {
    let ratio = row.ratio?;
    Some(match row.figure {
        Figure::Bandwidth => [ratio.min, ratio.median, ratio.max],
        Figure::Latency => [1.0 / ratio.max, 1.0 / ratio.median, 1.0 / ratio.min],
    })
}

fn draw_on<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    rows: &[Row],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let speeds: Vec<Option<[f64; 3]>> = rows.iter().map(speed).collect();
    let ends = speeds.iter().flatten();
    let least = ends.clone().map(|speed| speed[0]).fold(0.8, f64::min) * 0.9;
    let most = ends.map(|speed| speed[2]).fold(1.25, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(
            "Speed of perf beside perftest: median, and all runs (1 = perftest, right is faster)",
            ("sans-serif", 17),
        )
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(100)
        .build_cartesian_2d((least..most).log_scale(), 0.0..rows.len() as f64)?;
    let place = |index: usize| rows.len() as f64 - index as f64 - 0.5;
    let label = ("sans-serif", 13).into_text_style(area);
    for tick in TICKS.into_iter().filter(|tick| (least..most).contains(tick)) {
        let colour = if tick == 1.0 { BLACK } else { RGBColor(215, 215, 215) };
        chart.draw_series([PathElement::new([(tick, 0.0), (tick, rows.len() as f64)], colour)])?;
        let (x, y) = chart.backend_coord(&(tick, 0.0));
        area.draw_text(&tick.to_string(), &label, (x - 8, y + 8))?;
    }
    for (index, (row, speed)) in rows.iter().zip(&speeds).enumerate() {
        let y = place(index);
        let (_, pixel) = chart.backend_coord(&(1.0, y));
        area.draw_text(&row.name, &label, (14, pixel - 7))?;
        let Some([least, median, most]) = *speed else { continue };
        let colour = if row.goal_met() { RGBColor(0, 110, 180) } else { RGBColor(200, 70, 0) };
        chart.draw_series([PathElement::new([(least, y), (most, y)], colour.stroke_width(2))])?;
        chart.draw_series([Circle::new((median, y), 5, colour.filled())])?;
    }
    Ok(())
}
