//! What each head of a model reaches, as a map of layers and heads.

use std::collections::BTreeSet;

use super::{
    Picture,
    axis::{self, BELOW, Linear, thinned},
    colour::{AXIS, CHOSEN, INK, MUTED, NO_DATA, WHITE, heat, heat_terminal},
    font,
    page::{Page, nothing},
    scene::{Anchor, Area, Look, NAME, Scene, TICK},
    terminal::{BOLD, DIM, Lines, PLAIN, columns, on, pad_left},
    words::{as_exact, finite, number},
};
use crate::ids::HeadRef;

/// A number for every head of a model: layers upward from 0 at the bottom, as they are stacked, heads to the right.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// Words above; may be empty.
    pub title: String,
    /// What is shown, more exactly; may be empty.
    pub subtitle: String,
    /// What the values are, with their unit.
    pub value_name: String,
    /// Where the values have a floor that means something.
    pub chance: Option<Chance>,
    /// [layers, heads], row by row. A last row that is short and values that are not finite are shown as cells without data.
    pub values: Vec<f64>,
    /// Query heads in a layer.
    pub n_heads: usize,
    /// Heads to outline and name (the chosen ones; the first 96 from the top are named). The caption names those that are
    /// not in the map.
    pub marked: Vec<HeadRef>,
}

/// What a head reaches by chance, and the most there is, such as 50 and 100 for percent of AUROC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// Marked on the scale of the picture; the lowest shade in a terminal.
    pub value: f64,
    /// The highest shade in a terminal.
    pub best: f64,
}

/// Pixels a map aims at, across and up, and those it never exceeds.
const USUAL: (f64, f64) = (560.0, 480.0);
const MOST: (f64, f64) = (1400.0, 1100.0);
/// Smallest cell that is easily seen, and the largest.
const SMALL: f64 = 7.0;
const LARGE: f64 = 28.0;
/// Least width of the area of the map, and height of the colour bar.
const NARROWEST: f64 = 60.0;
const BAR_HEIGHT: f64 = 130.0;
const BAR_WIDTH: f64 = 14.0;
/// Cells reach this far under the next ones, or viewers show white seams.
const UNDER: f64 = 2.0;
/// Line height of the marked heads' names.
const LABEL_LINE: f64 = 15.0;
/// Most heads that are named; the page would grow without end.
const MOST_NAMES: usize = 96;
/// From the map to the names.
const LEADER: f64 = 18.0;
/// Rows of a map in the terminal; more are merged.
const MOST_ROWS: usize = 160;

impl Heatmap {
    fn n_layers(&self) -> usize {
        if self.n_heads == 0 { 0 } else { self.values.len().div_ceil(self.n_heads) }
    }

    /// The value of a head, if it is in the map and has one.
    fn value(&self, layer: usize, head: usize) -> Option<f64> {
        let inside = head < self.n_heads && layer < self.n_layers();
        inside.then(|| self.values.get(layer * self.n_heads + head).copied()).flatten().and_then(finite)
    }

    fn value_of(&self, head: HeadRef) -> Option<f64> {
        self.value(head.layer.into(), head.head.into())
    }

    fn holds(&self, head: HeadRef) -> bool {
        usize::from(head.layer) < self.n_layers() && usize::from(head.head) < self.n_heads
    }

    /// The scale of colours; `None` without a cell that has a value. What chance reaches is on it.
    fn range(&self) -> Option<Linear> {
        let cells = if self.n_heads == 0 { &[][..] } else { &self.values };
        let own = Linear::over(cells.iter().copied())?;
        match self.chance_value() {
            Some(chance) => Linear::over([own.low, own.high, chance]),
            None => Some(own.with_near_zero()),
        }
    }

    fn chance_value(&self) -> Option<f64> {
        self.chance.and_then(|chance| finite(chance.value))
    }

    /// The scale of shades in a terminal: a few steps, so from chance to the best where that is known.
    fn shades(&self) -> Option<Linear> {
        let range = self.range()?;
        let fixed = self.chance.and_then(|c| Linear::over([c.value, c.best]));
        Some(fixed.unwrap_or(range))
    }

    /// Marked heads in the map, each once, from the top layer down, and those outside.
    fn marked(&self) -> (Vec<HeadRef>, Vec<HeadRef>) {
        let all: BTreeSet<HeadRef> = self.marked.iter().copied().collect();
        let (mut inside, outside): (Vec<_>, Vec<_>) = all.into_iter().partition(|h| self.holds(*h));
        inside.sort_by_key(|h| (std::cmp::Reverse(h.layer), h.head));
        (inside, outside)
    }

    /// What needs to be said in words. `outlined` heads are marked in the picture.
    fn notes(&self, outlined: usize, outside: &[HeadRef]) -> String {
        let mut notes = Vec::new();
        let cells = self.n_layers() * self.n_heads;
        let known: Vec<f64> = self.values.iter().copied().filter_map(finite).collect();
        if let Some(first) =
            known.first().filter(|first| known.len() > 1 && known.iter().all(|v| v == *first))
        {
            notes.push(format!("All values are {}.", number(*first)));
        }
        if let Some(chance) = self.chance_value().filter(|_| !known.is_empty()) {
            notes.push(format!("Chance: {}.", number(chance)));
        }
        if !known.is_empty() && known.len() < cells {
            notes.push(format!("Grey: {} of {cells} heads have no value.", cells - known.len()));
        }
        if outlined > MOST_NAMES {
            notes.push(format!("{} more heads are outlined but not named.", outlined - MOST_NAMES));
        }
        if !outside.is_empty() {
            let names: Vec<String> = outside.iter().map(ToString::to_string).collect();
            notes.push(format!("Chosen but not in this map: {}.", names.join(", ")));
        }
        notes.join(" ")
    }

    /// Width and height of a cell in pixels: about square, whole pixels unless there are very many.
    fn cell(&self) -> (f64, f64) {
        let (layers, heads) = (self.n_layers().max(1) as f64, self.n_heads.max(1) as f64);
        let high = (USUAL.1 / layers).clamp(SMALL, LARGE).floor().min(MOST.1 / layers);
        let wide = (USUAL.0 / heads).clamp(SMALL, (1.6 * high).max(SMALL)).floor().min(MOST.0 / heads);
        (wide, high)
    }
}

impl Picture for Heatmap {
    fn scene(&self) -> Scene {
        let (inside, outside) = self.marked();
        let (cell, range) = (self.cell(), self.range());
        let size = (cell.0 * self.n_heads as f64, cell.1 * self.n_layers() as f64);
        let height = size.1.max(BAR_HEIGHT);
        let names = Names::of(self, &inside[..inside.len().min(MOST_NAMES)], height);
        let rooms = range.map_or(0.0, |r| axis::left_room(&r, height));
        let notes = self.notes(inside.len(), &outside);
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &notes,
            keys: &[],
            body: (size.0.max(NARROWEST), height),
            margins: [50.0, names.width + BAR_WIDTH + rooms + 14.0, 2.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some(range) = range else {
            nothing(&mut scene, body);
            return scene;
        };
        let map = Area { y0: body.y1 - size.1, x1: body.x0 + size.0, ..body };
        self.draw_cells(&mut scene, map, cell, &range);
        self.draw_axes(&mut scene, map, cell);
        self.draw_marked(&mut scene, map, cell, &inside);
        names.draw(&mut scene, map, body, cell.1);
        let x0 = body.x1 + names.width + 14.0;
        let bar = Area { x0, x1: x0 + BAR_WIDTH, ..body };
        draw_bar(&mut scene, bar, &range, &self.value_name);
        if let Some(chance) = self.chance_value() {
            draw_chance(&mut scene, bar, bar.y(range.place(chance)));
        }
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        lines.paragraph(&self.subtitle, DIM);
        let (inside, outside) = self.marked();
        match self.shades() {
            Some(range) => {
                self.write_map(&mut lines, &range, &inside);
                let chosen = inside.iter().map(|h| {
                    let value = self.value_of(*h).map_or("no value".to_owned(), number);
                    format!("{h} {value}")
                });
                let chosen: Vec<String> = chosen.collect();
                if !chosen.is_empty() {
                    lines.paragraph(&format!("◆ chosen: {}", chosen.join(", ")), PLAIN);
                }
            }
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.notes(0, &outside), DIM);
        lines.finish()
    }
}

/// Drawing.
impl Heatmap {
    fn draw_cells(&self, scene: &mut Scene, map: Area, cell: (f64, f64), range: &Linear) {
        for layer in (0..self.n_layers()).rev() {
            for head in 0..self.n_heads {
                let x0 = map.x0 + cell.0 * head as f64;
                let y1 = map.y1 - cell.1 * layer as f64;
                let area = Area {
                    x0,
                    y0: y1 - cell.1,
                    x1: (x0 + cell.0 + UNDER).min(map.x1),
                    y1: (y1 + UNDER).min(map.y1),
                };
                let colour = self.value(layer, head).map_or(NO_DATA, |v| heat(range.place(v)));
                scene.rect(area, colour);
            }
        }
    }

    fn draw_axes(&self, scene: &mut Scene, map: Area, cell: (f64, f64)) {
        for head in thinned(self.n_heads, cell.0, 22.0) {
            axis::tick_below(scene, (map.x0 + cell.0 * (head as f64 + 0.5), map.y1), &head.to_string());
        }
        for layer in thinned(self.n_layers(), cell.1, 15.0) {
            axis::tick_left(scene, (map.x0, map.y1 - cell.1 * (layer as f64 + 0.5)), &layer.to_string());
        }
        axis::bottom_name(scene, map, "head");
        axis::left_name(scene, map, 48.0, "layer");
    }

    fn draw_marked(&self, scene: &mut Scene, map: Area, cell: (f64, f64), marked: &[HeadRef]) {
        let area = |head: &HeadRef| {
            let x0 = map.x0 + cell.0 * f64::from(head.head);
            let y1 = map.y1 - cell.1 * f64::from(head.layer);
            // outside the cell, so that its colour is seen
            Area { x0: x0 - 1.0, y0: y1 - cell.1 - 1.0, x1: x0 + cell.0 + 1.0, y1: y1 + 1.0 }
        };
        marked.iter().for_each(|h| scene.frame(area(h), 3.6, WHITE));
        marked.iter().for_each(|h| scene.frame(area(h), 2.0, CHOSEN));
    }
}

/// The names of marked heads right of the map: they cover no cell, and have room when cells do not.
struct Names {
    /// [columns]: each name with the head's layer, the top layer first.
    columns: Vec<Vec<Name>>,
    /// Pixels of one column, and of all with what leads to them.
    column: f64,
    width: f64,
}

struct Name {
    layer: u16,
    head: String,
    value: String,
}

impl Names {
    fn of(map: &Heatmap, marked: &[HeadRef], height: f64) -> Self {
        let highest = map.range().map_or(0.0, |r| r.high);
        let name = |h: &HeadRef| Name {
            layer: h.layer,
            head: h.to_string(),
            value: map.value_of(*h).map_or("no value".to_owned(), |v| as_exact(v, highest)),
        };
        let names: Vec<Name> = marked.iter().map(name).collect();
        let column = font::widest(names.iter().map(|n| &n.head), NAME.em)
            + font::widest(names.iter().map(|n| &n.value), TICK.em)
            + 14.0;
        let rows = ((height / LABEL_LINE) as usize).max(1);
        let mut columns: Vec<Vec<Name>> = Vec::new();
        for (i, name) in names.into_iter().enumerate() {
            if i % rows == 0 {
                columns.push(Vec::new());
            }
            columns[i / rows].push(name);
        }
        let width = if columns.is_empty() { 0.0 } else { LEADER + column * columns.len() as f64 };
        Self { columns, column, width }
    }

    /// `height` is a row's, in pixels.
    fn draw(&self, scene: &mut Scene, map: Area, body: Area, height: f64) {
        for (i, column) in self.columns.iter().enumerate() {
            let rows: Vec<f64> =
                column.iter().map(|n| map.y1 - height * (f64::from(n.layer) + 0.5)).collect();
            let places = spread(&rows, body);
            let x = map.x1 + LEADER + self.column * i as f64;
            for ((name, row), y) in column.iter().zip(rows).zip(places) {
                if i == 0 {
                    scene.line((map.x1 + 3.0, row), (x - 4.0, y), 1.0, AXIS.faded(0.8));
                }
                scene.text_beside(&name.head, (x, y), Look { colour: INK, ..NAME });
                let value_x = x + self.column - 6.0;
                let look = Look { colour: MUTED, ..TICK.at(Anchor::End) };
                scene.text_beside(&name.value, (value_x, y), look);
            }
        }
    }
}

/// Heights for lines of text as near as can be to those wished for (rising), in their order and a line apart, inside an
/// area if they have room there. Lines that would overlap are spread evenly around the mean of their wishes (the
/// pool-adjacent-violators algorithm on what remains when each line's distance from the first is taken off).
fn spread(wished: &[f64], area: Area) -> Vec<f64> {
    // of each block of lines: the sum of their wishes without distances, and their number
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (i, wish) in wished.iter().enumerate() {
        let mut block = (wish - LABEL_LINE * i as f64, 1);
        while let Some(before) = blocks.pop_if(|b| b.0 / b.1 as f64 >= block.0 / block.1 as f64) {
            block = (block.0 + before.0, block.1 + before.1);
        }
        blocks.push(block);
    }
    let least = area.y0 + LABEL_LINE / 2.0;
    let most = (area.y1 - LABEL_LINE * (wished.len() as f64 - 0.5)).max(least);
    let bases = blocks.iter().flat_map(|(sum, n)| std::iter::repeat_n(sum / *n as f64, *n));
    bases.enumerate().map(|(i, base)| base.clamp(least, most) + LABEL_LINE * i as f64).collect()
}

fn draw_bar(scene: &mut Scene, bar: Area, range: &Linear, name: &str) {
    const STEPS: u32 = 100;
    for step in 0..STEPS {
        let [from, to] = [step, step + 1].map(|s| f64::from(s) / f64::from(STEPS));
        let y1 = (bar.y(from) + UNDER).min(bar.y1);
        scene.rect(Area { y0: bar.y(to), y1, ..bar }, heat((from + to) / 2.0));
    }
    scene.frame(bar, 0.8, AXIS);
    axis::right(scene, bar, range, name);
}

/// A line across the scale, with a wedge that points at it.
fn draw_chance(scene: &mut Scene, bar: Area, y: f64) {
    scene.line((bar.x0, y), (bar.x1, y), 3.0, WHITE);
    scene.line((bar.x0, y), (bar.x1, y), 1.4, INK);
    scene.polygon(vec![(bar.x0 - 8.0, y - 4.0), (bar.x0 - 8.0, y + 4.0), (bar.x0 - 1.0, y)], INK);
}

/// In the terminal.
impl Heatmap {
    fn write_map(&self, lines: &mut Lines, range: &Linear, marked: &[HeadRef]) {
        let (layers, heads) = (self.n_layers(), self.n_heads);
        let gutter = layers.saturating_sub(1).to_string().len() + 1;
        let room = lines.width().saturating_sub(gutter).max(1);
        let wide = if heads * 2 <= room { 2 } else { 1 };
        let merged = (layers.div_ceil(MOST_ROWS), (heads * wide).div_ceil(room));
        let (rows, cols) = (layers.div_ceil(merged.0), heads.div_ceil(merged.1));
        let mut header = String::new();
        for col in thinned(cols, wide as f64, 5.0) {
            header += &" ".repeat((col * wide).saturating_sub(columns(&header)));
            header += &(col * merged.1).to_string();
        }
        lines.row(&format!("{}{header}", " ".repeat(gutter)), DIM);
        let marks: BTreeSet<(usize, usize)> = marked
            .iter()
            .map(|h| (usize::from(h.layer) / merged.0, usize::from(h.head) / merged.1))
            .collect();
        for row in (0..rows).rev() {
            lines.put(&(pad_left(&(row * merged.0).to_string(), gutter - 1) + " "), DIM);
            for col in 0..cols {
                let value = self.highest((row, col), merged);
                let cell = value.map(|v| range.place(v));
                write_cell(lines, cell, marks.contains(&(row, col)), wide);
            }
            lines.end();
        }
        self.write_scale(lines, range);
        let mut words = "rows: layers, 0 at the bottom; columns: heads".to_owned();
        if merged != (1, 1) {
            words += &format!("; each cell: the highest of {} x {}", merged.0, merged.1);
        }
        lines.paragraph(&words, DIM);
    }

    /// The highest value of a cell of `merged` layers and heads.
    fn highest(&self, (row, col): (usize, usize), merged: (usize, usize)) -> Option<f64> {
        let layers = row * merged.0..(row + 1) * merged.0;
        let heads = col * merged.1..(col + 1) * merged.1;
        layers.flat_map(|l| heads.clone().filter_map(move |h| self.value(l, h))).reduce(f64::max)
    }

    fn write_scale(&self, lines: &mut Lines, range: &Linear) {
        const CELLS: usize = 10;
        lines.put(&format!("{} ", number(range.low)), PLAIN);
        for i in 0..CELLS {
            write_cell(lines, Some(i as f64 / (CELLS - 1) as f64), false, 1);
        }
        lines.put(&format!(" {}  ", number(range.high)), PLAIN);
        lines.row(&self.value_name, PLAIN);
    }
}

/// One cell of `wide` columns: its colour, or a shade where there are none.
fn write_cell(lines: &mut Lines, share: Option<f64>, marked: bool, wide: usize) {
    const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
    let colour = share.map_or(NO_DATA.terminal(), heat_terminal);
    let shade = share.map_or("·", |s| SHADES[(s * 5.0).min(4.0) as usize]);
    match (marked, lines.colour()) {
        (true, true) => lines.put(if wide == 2 { "◆ " } else { "◆" }, on(colour)),
        (true, false) if wide == 2 => lines.put(&format!("◆{shade}"), BOLD),
        (true, false) => lines.put("◆", BOLD),
        (false, true) => lines.put(&(if share.is_some() { " " } else { "·" }).repeat(wide), on(colour)),
        (false, false) => lines.put(&shade.repeat(wide), PLAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{colour::Colour, scene::Shape};

    fn head(layer: u16, head: u16) -> HeadRef {
        HeadRef { layer, head }
    }

    fn map(n_layers: usize, n_heads: usize, marked: Vec<HeadRef>) -> Heatmap {
        let values = (0..n_layers * n_heads).map(|i| (i * 37 % 101) as f64 / 100.0).collect();
        let [title, value_name] = ["A title", "mass"].map(Into::into);
        Heatmap { title, subtitle: String::new(), value_name, chance: None, values, n_heads, marked }
    }

    /// Areas as large as a cell, or a little larger.
    fn cells(map: &Heatmap) -> Vec<(Area, Colour)> {
        let (wide, high) = map.cell();
        let shapes = map.scene().shapes.into_iter();
        let rects =
            shapes.filter_map(|s| if let Shape::Rect { area, fill } = s { Some((area, fill)) } else { None });
        let near = |size: f64, cell: f64| size > cell - 0.01 && size < cell + UNDER + 0.01;
        rects.filter(|(a, _)| near(a.width(), wide) && near(a.height(), high)).collect()
    }

    #[test]
    fn every_head_is_a_cell_at_its_place_in_its_colour() {
        for (layers, heads) in [(12, 6), (24, 14), (61, 48), (80, 128)] {
            let map = map(layers, heads, vec![]);
            let cells = cells(&map);
            assert_eq!(cells.len(), layers * heads, "{layers} x {heads}");
            let lowest = cells.iter().map(|c| c.0.y1).fold(0.0, f64::max);
            let first = cells.iter().find(|c| c.0.y1 == lowest).unwrap();
            assert_eq!(first.1, heat(0.0), "L0H0 is at the lower left");
            let (width, height) = map.scene().size();
            assert!(width < 1500 && height < 1300, "{width} x {height}");
        }
    }

    #[test]
    fn marked_heads_are_outlined_and_named() {
        let map = map(24, 14, vec![head(16, 7), head(16, 8), head(2, 13), head(99, 0), head(16, 7)]);
        let svg = map.svg();
        for name in ["L16H7", "L16H8", "L2H13"] {
            assert_eq!(svg.matches(&format!(">\n{name}\n<")).count(), 1, "{name}");
        }
        assert!(svg.contains("Chosen but not in this map: L99H0."));
        assert_eq!(svg.matches("#E6283C").count(), 3 * 4, "four sides each");
    }

    #[test]
    fn names_of_many_marked_heads_stay_apart() {
        let marked: Vec<HeadRef> = (0..14).flat_map(|h| [20, 21, 22, 23].map(|l| head(l, h))).collect();
        let map = map(24, 14, marked.clone());
        let svg = map.svg();
        assert!(marked.iter().all(|h| svg.contains(&format!(">\n{h}\n<"))));
        let all: Vec<HeadRef> = (0..336).map(|i| head(i / 14, i % 14)).collect();
        let all = Heatmap { marked: all, ..map.clone() };
        assert!(
            all.svg().contains("240 more heads are outlined but not named.") && all.scene().size().0 < 1500
        );
        let area = Area { x0: 0.0, y0: 10.0, x1: 1.0, y1: 110.0 };
        assert_eq!(spread(&[12.0, 12.0, 60.0, 109.0, 109.0], area), [17.5, 32.5, 60.0, 87.5, 102.5]);
        assert_eq!(spread(&[50.0, 50.0, 50.0, 90.0], area), [35.0, 50.0, 65.0, 90.0]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut holes = map(3, 4, vec![]);
        holes.values[5] = f64::NAN;
        holes.values.pop();
        assert!(holes.svg().contains("Grey: 2 of 12 heads have no value."));
        assert_eq!(cells(&holes).iter().filter(|c| c.1 == NO_DATA).count(), 2);
        let same = Heatmap { values: vec![0.25; 12], ..holes.clone() };
        assert!(same.svg().contains("All values are 0.250."));
        for empty in [vec![], vec![f64::NAN; 8]] {
            let empty = Heatmap { values: empty, ..holes.clone() };
            assert!(empty.svg().contains("no data") && empty.terminal(40, false).contains("no data"));
        }
    }

    #[test]
    fn in_the_terminal_layers_go_upward_and_marks_are_seen() {
        let values = vec![0.0, 0.1, 1.0, f64::NAN, 0.55, 0.0];
        let marked = vec![head(1, 0)];
        let map = Heatmap { title: "T".into(), values, n_heads: 2, marked, ..map(1, 1, vec![]) };
        let shown = map.terminal(40, false);
        assert!(shown.starts_with("T\n  0\n2 ▒▒\n1 ◆█··\n0\n"), "{shown}");
        assert!(shown.contains("◆ chosen: L1H0 1.00"), "{shown}");
        let coloured = map.terminal(40, true);
        assert!(coloured.contains(&format!("48;5;{}m◆ ", heat_terminal(1.0))), "{coloured:?}");
    }

    #[test]
    fn heads_that_do_not_fit_are_merged_to_their_highest() {
        let mut map = map(2, 64, vec![head(0, 63)]);
        map.values = vec![0.0; 128];
        map.values[63] = 1.0;
        let shown = map.terminal(34, false);
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("each cell: the highest of 1 x 2"), "{shown}");
        let row = shown.lines().find(|l| l.starts_with("0 ")).unwrap();
        assert_eq!(row.chars().count(), 2 + 32, "{row:?}");
        assert!(row.ends_with('◆'));
    }

    #[test]
    fn chance_is_on_the_scale_and_the_lowest_shade_in_a_terminal() {
        let mut map = map(1, 4, vec![]);
        map.values = vec![30.0, 50.0, 75.0, 80.0];
        map.chance = Some(Chance { value: 50.0, best: 100.0 });
        assert_eq!(map.range(), Some(Linear { low: 30.0, high: 80.0 }));
        assert!(map.svg().contains("Chance: 50.0."));
        let shown = map.terminal(40, false);
        assert!(shown.contains("0     ▒▒▓▓\n"), "below chance is as dark as chance: {shown}");
        assert!(shown.contains("50.0 ") && shown.contains(" 100"), "{shown}");
        map.values = vec![60.0, 62.0, 64.0, 70.0];
        assert_eq!(map.range(), Some(Linear { low: 50.0, high: 70.0 }));
        map.values.clear();
        assert!(map.svg().contains("no data") && !map.svg().contains("Chance"));
    }
}
