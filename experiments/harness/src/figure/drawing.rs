//! Drawing a figure as SVG.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Figure, Panel, Series, Stroke};

/// The colours of series, distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
const GREY: RGBColor = RGBColor(110, 110, 110);
const MESH: RGBColor = RGBColor(228, 228, 228);
const FONT: &str = "sans-serif";

/// The heights of the title and of a legend line, in pixels.
const TITLE: u32 = 34;
const LEGEND_LINE: u32 = 22;
/// The widths of a legend entry's sample and of the gap between entries, in pixels.
const SAMPLE: i32 = 26;
const GAP: i32 = 26;
/// The approximate width of a character of the legend, in pixels.
const LETTER: i32 = 7;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), Box<dyn Error + 'a>>;

impl Figure {
    pub(super) fn try_draw<'a>(&self, path: &'a Path) -> Drawn<'a> {
        let columns = self.panels.len().clamp(1, self.columns.max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        let width = self.size.0 * columns as u32;
        let lines = self.legend_lines(width as i32 - GAP);
        let head = TITLE + LEGEND_LINE * lines.len() as u32;
        let root = SVGBackend::new(path, (width, head + self.size.1 * rows as u32));
        let root = root.into_drawing_area();
        root.fill(&WHITE)?;
        let (top, body) = root.split_vertically(head);
        let middle = Pos::new(HPos::Center, VPos::Center);
        let title = (FONT, 20).into_text_style(&top).pos(middle);
        top.draw(&Text::new(self.title.as_str(), (width as i32 / 2, TITLE as i32 / 2), title))?;
        draw_legend(&top, &lines, width as i32)?;
        for (panel, area) in self.panels.iter().zip(body.split_evenly((rows, columns))) {
            panel.draw(&area)?;
        }
        root.present()?;
        Ok(())
    }

    /// The legend, wrapped at `width` pixels.
    fn legend_lines(&self, width: i32) -> Vec<Vec<&Series>> {
        let mut lines: Vec<Vec<&Series>> = Vec::new();
        for series in self.legend() {
            match lines.last_mut() {
                Some(line) if line_width(line) + GAP + entry_width(series) <= width => {
                    line.push(series);
                }
                _ => lines.push(vec![series]),
            }
        }
        lines
    }
}

/// The width of a legend entry, in pixels.
fn entry_width(series: &Series) -> i32 {
    SAMPLE + 6 + LETTER * series.name.chars().count() as i32
}

fn line_width(line: &[&Series]) -> i32 {
    line.iter().map(|series| entry_width(series) + GAP).sum::<i32>() - GAP
}

fn draw_legend<'a>(area: &Area<'a>, lines: &[Vec<&Series>], width: i32) -> Drawn<'a> {
    let left = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 13).into_text_style(area).pos(left);
    for (number, line) in lines.iter().enumerate() {
        let y = (TITLE + LEGEND_LINE * number as u32 + LEGEND_LINE / 2) as i32;
        let mut x = (width - line_width(line)) / 2;
        for series in line {
            series.draw_sample(area, (x, y))?;
            area.draw(&Text::new(series.name.as_str(), (x + SAMPLE + 6, y), style.clone()))?;
            x += entry_width(series) + GAP;
        }
    }
    Ok(())
}

impl Panel {
    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.fit(points().map(|point| point.0));
        let y = self.y.fit(points().map(|point| point.1));
        let floor = y.start;
        let below = if self.groups.is_empty() { 42 } else { 52 };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 15))
            .margin(10)
            .x_label_area_size(below)
            .y_label_area_size(58)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.title.as_str())
            .y_desc(self.y.title.as_str())
            .label_style((FONT, 12))
            .axis_desc_style((FONT, 13))
            .light_line_style(TRANSPARENT)
            .bold_line_style(MESH)
            .draw()?;
        let (left, top) = area.get_base_pixel();
        let pixel = |a: f64, b: f64| {
            let (column, row) = chart.backend_coord(&(a, b));
            (column - left, row - top)
        };
        for series in &self.series {
            let points = series.points.iter().map(|&(a, b)| pixel(a, b));
            series.draw(area, points.collect())?;
        }
        let middle = Pos::new(HPos::Center, VPos::Top);
        let style = (FONT, 13).into_text_style(area).pos(middle);
        for (position, text) in &self.groups {
            let (column, row) = pixel(*position, floor);
            area.draw(&Text::new(text.as_str(), (column, row + 28), style.clone()))?;
        }
        Ok(())
    }
}

impl Series {
    fn style(&self) -> ShapeStyle {
        let colour = COLOURS[self.colour % COLOURS.len()];
        match self.stroke {
            Stroke::Limit => GREY.stroke_width(1),
            Stroke::Span => colour.stroke_width(1),
            _ => colour.stroke_width(2),
        }
    }

    /// Draws the series through these pixels of `area`.
    fn draw<'a>(&self, area: &Area<'a>, points: Vec<(i32, i32)>) -> Drawn<'a> {
        let style = self.style();
        for &at in &points {
            self.draw_mark(area, at)?;
        }
        match self.stroke {
            Stroke::Marked => area.draw(&PathElement::new(points, style))?,
            Stroke::Dashed => area.draw(&DashedPathElement::new(points, 7, 5, style))?,
            Stroke::Dotted | Stroke::Limit => {
                area.draw(&DashedPathElement::new(points, 2, 3, style))?;
            }
            Stroke::Span => {
                for span in points.chunks_exact(2) {
                    area.draw(&PathElement::new(span, style))?;
                }
            }
            Stroke::Disc | Stroke::Triangle | Stroke::Bar => {}
        }
        Ok(())
    }

    fn draw_mark<'a>(&self, area: &Area<'a>, at: (i32, i32)) -> Drawn<'a> {
        let style = self.style();
        let (x, y) = at;
        match self.stroke {
            Stroke::Marked => area.draw(&Circle::new(at, 3, style.filled()))?,
            Stroke::Disc => area.draw(&Circle::new(at, 4, style.filled()))?,
            Stroke::Triangle => area.draw(&TriangleMarker::new(at, 6, style.filled()))?,
            Stroke::Bar => area.draw(&PathElement::new([(x - 5, y), (x + 5, y)], style))?,
            Stroke::Dashed | Stroke::Dotted | Stroke::Limit | Stroke::Span => {}
        }
        Ok(())
    }

    /// Draws the sample in the legend, from this pixel to the right.
    fn draw_sample<'a>(&self, area: &Area<'a>, (x, y): (i32, i32)) -> Drawn<'a> {
        let points = match self.stroke {
            Stroke::Disc | Stroke::Triangle | Stroke::Bar => vec![(x + SAMPLE / 2, y)],
            _ => vec![(x, y), (x + SAMPLE, y)],
        };
        self.draw(area, points)
    }
}
