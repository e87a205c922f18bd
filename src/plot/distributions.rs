//! How scores of groups are spread, laid over each other.

use super::{
    Picture,
    axis::{self, BELOW, Linear},
    colour::{Colour, group},
    page::{Key, Mark, Page, nothing},
    scene::{Area, Scene},
    terminal::{self, DIM, Lines, PLAIN, front},
    words::{finite, median, number},
};

/// Scores of a few groups, such as relevant chunks and others, as histograms over the same bins. Each group's bars sum to 1,
/// so that a small group is seen beside a large one; where a group has fewer than 30 scores, all are shown as dots, each
/// group in its own strip. Medians are marked.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributions {
    /// Words above; may be empty.
    pub title: String,
    /// What is shown, more exactly; may be empty.
    pub subtitle: String,
    /// What the scores are, with their unit.
    pub score_name: String,
    /// Name and scores of each group; scores that are not finite are counted in words only.
    pub groups: Vec<(String, Vec<f64>)>,
}

/// Fewest scores of every group that a histogram is drawn of, and the most that are drawn as dots.
const ENOUGH: usize = 30;
const MOST_DOTS: usize = 300;
/// Height of a group's strip of dots, and the room one dot takes.
const STRIP: f64 = 90.0;
const DOT: f64 = 7.0;
/// Pixels of the data.
const BODY: (f64, f64) = (520.0, 300.0);
const MOST_BINS: usize = 60;
/// Most groups drawn; more are not told apart.
const MOST_GROUPS: usize = 6;
/// Lines of each group's histogram in the terminal.
const TERMINAL_LINES: usize = 4;
/// Most columns of a histogram there.
const TERMINAL_WIDTH: usize = 76;

/// One group, binned.
struct Group {
    /// Name with count and median.
    words: String,
    colour: Colour,
    median: Option<f64>,
    /// Share of the group's scores in each bin.
    shares: Vec<f64>,
}

impl Distributions {
    fn finite_scores(&self) -> Vec<Vec<f64>> {
        let shown = self.groups.iter().take(MOST_GROUPS);
        shown.map(|(_, scores)| scores.iter().copied().filter_map(finite).collect()).collect()
    }

    /// The axis of scores and the groups over at most `most` bins of it; `None` without a score.
    fn binned(&self, most: usize) -> Option<(Linear, Vec<Group>)> {
        let scores = self.finite_scores();
        let range = Linear::over(scores.iter().flatten().copied())?;
        let n_bins = bins(&scores, &range).min(most).max(1);
        let group = |(i, (name, all)): (usize, &(String, Vec<f64>))| Group {
            words: describe(name, all.len(), &scores[i]),
            colour: group(i),
            median: median(&scores[i]),
            shares: shares(&scores[i], &range, n_bins),
        };
        Some((range, self.groups.iter().take(MOST_GROUPS).enumerate().map(group).collect()))
    }

    /// Whether there are so few scores that each is shown.
    fn are_few(scores: &[Vec<f64>]) -> bool {
        let least = scores.iter().map(Vec::len).filter(|n| *n > 0).min().unwrap_or(0);
        least < ENOUGH && scores.iter().map(Vec::len).sum::<usize>() <= MOST_DOTS
    }

    /// Says what the marks are, and which groups are left out.
    fn caption(&self) -> String {
        let left_out = self.left_out();
        if self.finite_scores().iter().all(Vec::is_empty) {
            left_out
        } else {
            format!("Dashed lines with a wedge: medians. {left_out}").trim_end().to_owned()
        }
    }

    fn left_out(&self) -> String {
        let names: Vec<&str> = self.groups.iter().skip(MOST_GROUPS).map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("Not shown: {}.", names.join(", ")) }
    }
}

/// `relevant: n = 300, median 0.412`.
fn describe(name: &str, count: usize, finite: &[f64]) -> String {
    let middle = median(finite).map_or("no data".to_owned(), |m| format!("median {}", number(m)));
    let missing = match count - finite.len() {
        0 => String::new(),
        n => format!(", {n} without a value"),
    };
    format!("{name}: n = {}, {middle}{missing}", finite.len())
}

/// Number of bins by the rule of Freedman and Diaconis (1981), `2·IQR / n^(1/3)` wide, of the group for which they are
/// narrowest; within what can be seen.
fn bins(groups: &[Vec<f64>], range: &Linear) -> usize {
    const FEWEST: f64 = 12.0;
    let wanted = groups.iter().filter(|g| g.len() > 1).map(|scores| {
        let mut sorted = scores.clone();
        sorted.sort_by(f64::total_cmp);
        let quartile = |q: usize| range.place(sorted[(sorted.len() - 1) * q / 4]);
        let wide = 2.0 * (quartile(3) - quartile(1)) / (sorted.len() as f64).cbrt();
        if wide > 0.0 { 1.0 / wide } else { FEWEST }
    });
    wanted.fold(FEWEST, f64::max).min(MOST_BINS as f64).round() as usize
}

/// The share of scores in each of `n_bins` equal parts of a range.
fn shares(scores: &[f64], range: &Linear, n_bins: usize) -> Vec<f64> {
    let mut shares = vec![0.0; n_bins];
    for score in scores {
        shares[terminal::column(range.place(*score), n_bins)] += 1.0 / scores.len() as f64;
    }
    shares
}

impl Picture for Distributions {
    fn scene(&self) -> Scene {
        let scores = self.finite_scores();
        if Self::are_few(&scores)
            && let Some((range, groups)) = self.binned(MOST_BINS)
        {
            return self.dots(&range, &groups, &scores);
        }
        let binned = self.binned(MOST_BINS);
        let groups = binned.as_ref().map_or(&[][..], |(_, groups)| groups);
        let highest = groups.iter().flat_map(|g| g.shares.iter().copied()).fold(0.0, f64::max);
        let upright = Linear { low: 0.0, high: if highest > 0.0 { highest * 1.06 } else { 1.0 } };
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &self.caption(),
            keys: &keys(groups),
            body: BODY,
            margins: [axis::left_room(&upright, BODY.1), 20.0, 4.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        let Some((range, groups)) = &binned else {
            nothing(&mut scene, body);
            return scene;
        };
        axis::left(&mut scene, body, &upright, "share of the group per bin");
        axis::bottom(&mut scene, body, range, &self.score_name);
        let filled = groups.iter().filter(|g| g.median.is_some());
        filled.clone().for_each(|g| draw_fill(&mut scene, body, &upright, g));
        filled.clone().for_each(|g| draw_outline(&mut scene, body, &upright, g));
        filled.for_each(|g| draw_median(&mut scene, body, range, g));
        scene
    }

    fn terminal(&self, width: usize, colour: bool) -> String {
        let mut lines = Lines::new(width, colour);
        lines.title(&self.title);
        lines.paragraph(&self.subtitle, DIM);
        match self.binned(width) {
            Some((range, groups)) => {
                let n_bins = groups.first().map_or(1, |g| g.shares.len());
                let wide = (width.min(TERMINAL_WIDTH) / n_bins).max(1);
                let highest = groups.iter().flat_map(|g| g.shares.iter().copied()).fold(0.0, f64::max);
                groups.iter().for_each(|g| write_group(&mut lines, g, wide, &range, highest));
                write_axis(&mut lines, &range, n_bins * wide);
                lines.row(&self.score_name, PLAIN);
            }
            None => lines.row("no data", DIM),
        }
        lines.paragraph(&self.left_out(), DIM);
        lines.finish()
    }
}

/// Few scores.
impl Distributions {
    /// Each group's scores as dots in a strip of its own.
    fn dots(&self, range: &Linear, groups: &[Group], scores: &[Vec<f64>]) -> Scene {
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            caption: &self.caption(),
            keys: &keys(groups),
            body: (BODY.0, STRIP * groups.len() as f64),
            margins: [20.0, 20.0, 4.0, BELOW],
        };
        let (mut scene, body) = page.lay();
        axis::bottom(&mut scene, body, range, &self.score_name);
        for (i, (group, scores)) in groups.iter().zip(scores).enumerate() {
            let y0 = body.y0 + STRIP * i as f64;
            let strip = Area { y0, y1: y0 + STRIP, ..body };
            draw_dots(&mut scene, strip, range, group.colour, scores);
            draw_median(&mut scene, strip, range, group);
        }
        scene
    }
}

fn keys(groups: &[Group]) -> Vec<Key> {
    let key = |g: &Group| Key { name: g.words.clone(), mark: Mark::Square, colour: g.colour };
    groups.iter().map(key).collect()
}

/// Dots at their scores; those that would lie on each other are stacked from the strip's middle up and down in turn.
fn draw_dots(scene: &mut Scene, strip: Area, range: &Linear, colour: Colour, scores: &[f64]) {
    let columns = (strip.width() / DOT) as usize;
    let mut stacks = vec![Vec::new(); columns];
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    for score in sorted {
        stacks[terminal::column(range.place(score), columns)].push(score);
    }
    let highest = stacks.iter().map(Vec::len).max().unwrap_or(0).max(1) as f64;
    let step = DOT.min((STRIP - 2.0 * DOT) / highest);
    for stack in &stacks {
        for (i, score) in stack.iter().enumerate() {
            let side = if i % 2 == 0 { 0.5 } else { -0.5 };
            let y = strip.y(0.5) + side * step * (i + 1 - i % 2) as f64 - step * 0.5;
            scene.dot((strip.x(range.place(*score)), y), DOT * 0.45, colour.faded(0.75));
        }
    }
}

/// The corners along the tops of a group's bars, from the lower left to the lower right.
fn steps(body: Area, upright: &Linear, shares: &[f64]) -> Vec<(f64, f64)> {
    let mut corners = vec![(body.x0, body.y1)];
    for (i, share) in shares.iter().enumerate() {
        let y = body.y(upright.place(*share));
        let x = |bin: usize| body.x(bin as f64 / shares.len() as f64);
        corners.extend([(x(i), y), (x(i + 1), y)]);
    }
    corners.push((body.x1, body.y1));
    corners
}

fn draw_fill(scene: &mut Scene, body: Area, upright: &Linear, group: &Group) {
    scene.polygon(steps(body, upright, &group.shares), group.colour.faded(0.22));
}

fn draw_outline(scene: &mut Scene, body: Area, upright: &Linear, group: &Group) {
    for pair in steps(body, upright, &group.shares).windows(2) {
        // along the axis there is no line: nothing is there
        if pair[0] != pair[1] && (pair[0].1 < body.y1 || pair[1].1 < body.y1) {
            scene.line(pair[0], pair[1], 1.6, group.colour);
        }
    }
}

/// A dashed line with a triangle at its top.
fn draw_median(scene: &mut Scene, body: Area, range: &Linear, group: &Group) {
    let Some(median) = group.median else { return };
    let x = body.x(range.place(median));
    scene.dashed((x, body.y0), (x, body.y1), 1.4, group.colour);
    let top = body.y0;
    scene.polygon(vec![(x - 5.0, top - 3.0), (x + 5.0, top - 3.0), (x, top + 5.0)], group.colour);
}

/// A group in words, its histogram with bins of `wide` columns, and a mark below its median.
fn write_group(lines: &mut Lines, group: &Group, wide: usize, range: &Linear, highest: f64) {
    lines.paragraph(&group.words, front(group.colour));
    for line in (0..TERMINAL_LINES).rev() {
        let block = |share: &f64| {
            let filled = share / highest * TERMINAL_LINES as f64 - line as f64;
            // what is there is never invisible
            let seen = if line == 0 && *share > 0.0 { filled.max(0.13) } else { filled };
            terminal::block(seen)
        };
        let row: String = group.shares.iter().map(block).flat_map(|b| std::iter::repeat_n(b, wide)).collect();
        lines.row(&row, front(group.colour));
    }
    if let Some(median) = group.median {
        let column = terminal::column(range.place(median), group.shares.len() * wide);
        lines.row(&format!("{}▲", " ".repeat(column)), front(group.colour));
    }
}

/// The numbers at both ends of an axis and in its middle.
fn write_axis(lines: &mut Lines, range: &Linear, width: usize) {
    let middle = number(range.low / 2.0 + range.high / 2.0);
    let [low, high] = [range.low, range.high].map(number);
    let used = low.len() + middle.len() + high.len();
    if used + 2 <= width {
        let before = (width / 2).saturating_sub(middle.len() / 2 + low.len()).max(1);
        let after = width.saturating_sub(used + before);
        lines.row(&format!("{low}{}{middle}{}{high}", " ".repeat(before), " ".repeat(after)), DIM);
    } else {
        lines.row(&format!("{low} to {high}"), DIM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::scene::Shape;

    fn two(relevant: Vec<f64>, others: Vec<f64>) -> Distributions {
        Distributions {
            title: "T".into(),
            subtitle: String::new(),
            score_name: "score".into(),
            groups: vec![("relevant".into(), relevant), ("others".into(), others)],
        }
    }

    #[test]
    fn groups_share_bins_and_each_sums_to_one() {
        let picture = two((0..40).map(f64::from).collect(), (20..30).map(f64::from).collect());
        let (range, groups) = picture.binned(MOST_BINS).unwrap();
        assert_eq!(range, Linear { low: 0.0, high: 39.0 });
        for group in &groups {
            assert!((group.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(group.shares.len(), groups[0].shares.len());
        }
        let inside = shares(&[0.0, 0.1, 0.5, 1.0], &Linear { low: 0.0, high: 1.0 }, 2);
        assert_eq!(inside, [0.5, 0.5]);
    }

    #[test]
    fn keys_say_counts_and_medians() {
        let picture = two(vec![0.4, 0.5, 0.9, f64::NAN], vec![]);
        let svg = picture.svg();
        assert!(svg.contains(">\nrelevant: n = 3, median 0.500, 1 without a value\n<"), "{svg}");
        assert!(svg.contains(">\nothers: n = 0, no data\n<"));
        let text = picture.terminal(60, false);
        assert!(text.contains("relevant: n = 3, median 0.500") && text.matches('▲').count() == 1, "{text}");
    }

    #[test]
    fn bins_grow_with_the_data_within_limits() {
        let unit = Linear { low: 0.0, high: 1.0 };
        let even = |n: i32| vec![(0..n).map(|i| f64::from(i) / f64::from(n - 1)).collect::<Vec<f64>>()];
        assert_eq!(bins(&even(10), &unit), 12);
        assert_eq!(bins(&even(30_000), &unit), 31);
        let mut tail = vec![0.0; 1000];
        tail.iter_mut().enumerate().for_each(|(i, v)| *v = i as f64 * 1e-6);
        assert_eq!(bins(&[tail], &unit), 60);
        assert_eq!(bins(&[vec![], vec![0.3; 9]], &unit), 12);
    }

    #[test]
    fn the_histogram_in_the_terminal_is_as_high_as_its_shares() {
        let text = two(vec![0.0, 0.0, 0.0, 1.0], vec![1.0]).terminal(2, false);
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows.windows(4).any(|r| r == ["", "█", "█", "██"]), "{text}");
    }

    /// Centres of the dots.
    fn dots(picture: &Distributions) -> Vec<(f64, f64)> {
        let shapes = picture.scene().shapes.into_iter();
        let centre = |s| if let Shape::Dot { centre, .. } = s { Some(centre) } else { None };
        shapes.filter_map(centre).collect()
    }

    #[test]
    fn few_scores_are_dots_and_none_hides_another() {
        let picture = two(vec![0.5; 9], (0..40).map(|i| f64::from(i % 5)).collect());
        let mut drawn = dots(&picture);
        assert_eq!(drawn.len(), 49, "every score is there");
        drawn.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let apart = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0).hypot(pair[1].1 - pair[0].1) > DOT * 0.8;
        assert!(drawn.windows(2).all(apart), "{drawn:?}");
        let many = |n: i32| (0..n).map(f64::from).collect::<Vec<f64>>();
        assert!(dots(&two(many(30), many(30))).is_empty(), "a histogram");
        assert_eq!(dots(&two(many(30), vec![])).len(), 0, "an empty group is no small one");
        assert!(dots(&two(many(9), many(292))).is_empty(), "too many for dots");
    }

    #[test]
    fn dashed_lines_are_explained() {
        assert!(two(vec![0.1; 50], vec![0.2; 50]).svg().contains("medians"));
        assert!(two(vec![0.1; 5], vec![]).svg().contains("medians"));
        assert!(!two(vec![], vec![]).svg().contains("medians"));
    }
}
