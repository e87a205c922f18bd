//! Points of two numbers in groups, such as chunk lengths and scores.

use super::{
    Picture,
    axis::{self, BELOW, Linear},
    colour::{Colour, MUTED, group},
    page::{Key, Mark, Page, nothing},
    scene::Scene,
    terminal::{self, DIM, Lines, PLAIN, front, pad_left},
    words::{finite, number},
};

/// Points in groups, each with its colour and form.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// Words above; may be empty.
    pub title: String,
    /// What is shown, more exactly; may be empty.
    pub subtitle: String,
    /// What lies to the right, with its unit.
    pub x_name: String,
    /// What lies upward, with its unit.
    pub y_name: String,
    /// To the right, upward, and the index of the group. Points that are not finite are counted in words only.
    pub points: Vec<(f64, f64, usize)>,
    /// Names of the groups; points of later indices are drawn grey, as "other".
    pub groups: Vec<String>,
}

/// Pixels of the data.
const BODY: (f64, f64) = (500.0, 360.0);
/// Lines of the data in the terminal.
const TERMINAL_LINES: usize = 16;
const MARKS: [Mark; 4] = [Mark::Dot, Mark::Triangle, Mark::Square, Mark::Diamond];

impl Scatter {
    /// Finite points with their group; later indices than names are the group after the last.
    fn finite_points(&self) -> Vec<(f64, f64, usize)> {
        let point = |&(x, y, g): &(f64, f64, usize)| Some((finite(x)?, finite(y)?, g.min(self.groups.len())));
        self.points.iter().filter_map(point).collect()
    }

    /// Name, mark and colour of each group, "other" if it is needed.
    fn keys(&self, points: &[(f64, f64, usize)]) -> Vec<Key> {
        let key = |(i, name): (usize, &String)| Key {
            name: name.clone(),
            mark: MARKS[i % MARKS.len()],
            colour: group(i),
        };
        let mut keys: Vec<Key> = self.groups.iter().enumerate().map(key).collect();
        if points.iter().any(|p| p.2 == self.groups.len()) {
            keys.push(Key { name: "other".into(), mark: Mark::Dot, colour: MUTED });
        }
        keys
    }

    fn ranges(points: &[(f64, f64, usize)]) -> Option<(Linear, Linear)> {
        let range = |values: Vec<f64>| Some(Linear::over(values)?.padded(0.03).with_near_zero());
        Some((range(points.iter().map(|p| p.0).collect())?, range(points.iter().map(|p| p.1).collect())?))
    }

    fn caption(&self, drawn: usize) -> String {
        match self.points.len() - drawn {
            0 => String::new(),
            n => format!("{n} of {} points have no value and are not shown.", self.points.len()),
        }
    }
}

impl Picture for Scatter {
    fn scene(&self) -> Scene {
        let points = self.finite_points();
        let keys = self.keys(&points);
        let ranges = Self::ranges(&points);
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &self.caption(points.len()),
            keys: &keys,
            body: BODY,
            margins: [ranges.map_or(0.0, |r| axis::left_room(&r.1, BODY.1)), 20.0, 4.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some((right, up)) = ranges else {
            nothing(&mut scene, body);
            return scene;
        };
        axis::left(&mut scene, body, &up, &self.y_name);
        axis::bottom(&mut scene, body, &right, &self.x_name);
        let (radius, alpha) = match points.len() {
            0..=60 => (3.4, 0.7),
            61..=300 => (2.8, 0.5),
            _ => (2.2, 0.4),
        };
        // the first groups are the smaller ones, as a rule, and lie on top
        let mut points = points;
        points.sort_by_key(|point| std::cmp::Reverse(point.2));
        for (x, y, g) in points {
            let at = (body.x(right.place(x)), body.y(up.place(y)));
            keys[g].mark.draw(&mut scene, at, radius, keys[g].colour.faded(alpha));
        }
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        lines.paragraph(&self.subtitle, DIM);
        let points = self.finite_points();
        match Self::ranges(&points) {
            Some((right, up)) => self.write_points(&mut lines, &points, &right, &up),
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.caption(points.len()), DIM);
        lines.finish()
    }
}

/// In the terminal.
impl Scatter {
    /// The sign of a group, and of places where groups meet.
    const SIGNS: [char; 6] = ['●', '+', '○', 'x', '□', '◇'];
    const MEETING: char = '#';

    fn write_points(&self, lines: &mut Lines, points: &[(f64, f64, usize)], right: &Linear, up: &Linear) {
        let keys = self.keys(points);
        let sign = |g: usize| if g == self.groups.len() { '·' } else { Self::SIGNS[g % Self::SIGNS.len()] };
        let labels = [number(up.high), number(up.low)];
        let gutter = labels.iter().map(String::len).max().unwrap_or(0);
        let wide = lines.width().saturating_sub(gutter + 2).clamp(1, 72);
        for (g, key) in keys.iter().enumerate() {
            lines.put(&format!("{} {}   ", sign(g), key.name), front(key.colour));
        }
        lines.end();
        lines.row(&self.y_name, DIM);
        let grid = grid(points, (right, up), (wide, TERMINAL_LINES));
        for (i, row) in grid.iter().enumerate() {
            let label = if i == 0 {
                &labels[0]
            } else if i + 1 == TERMINAL_LINES {
                &labels[1]
            } else {
                ""
            };
            lines.put(&format!("{} │", pad_left(label, gutter)), DIM);
            for cell in row {
                match cell {
                    Cell::Empty => lines.put(" ", PLAIN),
                    Cell::Group(g) => {
                        lines.put(sign(*g).encode_utf8(&mut [0; 4]), front(key_colour(&keys, *g)))
                    }
                    Cell::Several => lines.put(Self::MEETING.encode_utf8(&mut [0; 4]), PLAIN),
                }
            }
            lines.end();
        }
        lines.row(&format!("{} └{}", " ".repeat(gutter), "─".repeat(wide)), DIM);
        let (low, high) = (number(right.low), number(right.high));
        let end = pad_left(&high, wide.saturating_sub(low.len()));
        lines.row(&format!("{}  {low}{end}", " ".repeat(gutter)), DIM);
        lines.row(&format!("{}  {}", " ".repeat(gutter), self.x_name), DIM);
        if grid.iter().flatten().any(|c| *c == Cell::Several) {
            lines.row(&format!("{} several groups", Self::MEETING), DIM);
        }
    }
}

fn key_colour(keys: &[Key], group: usize) -> Colour {
    keys.get(group).map_or(MUTED, |k| k.colour)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Empty,
    Group(usize),
    Several,
}

/// Whose points are in each cell, [lines, columns], the top line first.
fn grid(
    points: &[(f64, f64, usize)],
    (right, up): (&Linear, &Linear),
    (wide, high): (usize, usize),
) -> Vec<Vec<Cell>> {
    let mut grid = vec![vec![Cell::Empty; wide]; high];
    for (x, y, g) in points {
        let row = high - 1 - terminal::column(up.place(*y), high);
        let cell = &mut grid[row][terminal::column(right.place(*x), wide)];
        *cell = match cell {
            Cell::Empty => Cell::Group(*g),
            Cell::Group(there) if *there == *g => Cell::Group(*g),
            Cell::Group(_) | Cell::Several => Cell::Several,
        };
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::scene::Shape;

    fn scatter(points: Vec<(f64, f64, usize)>) -> Scatter {
        let [title, x_name, y_name] = ["T", "tokens", "score"].map(Into::into);
        let subtitle = String::new();
        Scatter { title, subtitle, x_name, y_name, points, groups: vec!["relevant".into(), "others".into()] }
    }

    #[test]
    fn points_lie_where_their_numbers_say() {
        let picture = scatter(vec![(10.0, 0.2, 0), (20.0, 0.2, 0), (10.0, 0.8, 0), (f64::NAN, 0.1, 0)]);
        let centre = |s| match s {
            Shape::Dot { centre, radius, .. } if radius < 4.0 => Some(centre),
            _ => None,
        };
        let dots: Vec<(f64, f64)> = picture.scene().shapes.into_iter().filter_map(centre).collect();
        assert_eq!(dots.len(), 3);
        assert!(dots[1].0 > dots[0].0 && dots[1].1 == dots[0].1, "more tokens: to the right");
        assert!(dots[2].1 < dots[0].1 && dots[2].0 == dots[0].0, "higher score: higher up");
        assert!(picture.svg().contains("1 of 4 points have no value and are not shown."));
    }

    #[test]
    fn groups_have_names_and_forms() {
        let svg = scatter(vec![(1.0, 1.0, 0), (2.0, 2.0, 1), (3.0, 3.0, 9)]).svg();
        assert!([">\nrelevant\n<", ">\nothers\n<", ">\nother\n<"].iter().all(|name| svg.contains(name)));
        assert!(svg.rfind("#D55E00") < svg.rfind("#0072B2"), "the first group lies on top");
        assert_eq!(svg.matches("<polygon").count(), 2, "key and point of the second group are triangles");
        assert!(!scatter(vec![(1.0, 1.0, 0)]).svg().contains(">\nother\n<"));
        assert!(scatter(vec![]).svg().contains("no data"));
    }

    #[test]
    fn places_of_several_groups_are_told() {
        let unit = Linear { low: 0.0, high: 1.0 };
        let points = [(0.0, 0.0, 0), (0.0, 0.0, 0), (1.0, 1.0, 0), (1.0, 1.0, 1), (0.9, 0.1, 1)];
        let wanted = [[Cell::Empty, Cell::Several], [Cell::Group(0), Cell::Group(1)]];
        assert_eq!(grid(&points, (&unit, &unit), (2, 2)), wanted);
        let text = scatter(vec![(0.0, 0.0, 0), (0.0, 0.0, 1), (5.0, 5.0, 1)]).terminal(40, false);
        assert!(text.contains("# several groups") && text.contains("● relevant   + others"), "{text}");
    }
}
