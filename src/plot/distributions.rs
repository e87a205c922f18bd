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
/// so that a small group is seen beside a large one. Medians are marked.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributions {
    /// Words above; may be empty.
    pub title: String,
    /// What the scores are, with their unit.
    pub score_name: String,
    /// Name and scores of each group; scores that are not finite are counted in words only.
    pub groups: Vec<(String, Vec<f64>)>,
}

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

    /// Says which groups are left out.
    fn caption(&self) -> String {
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
        let binned = self.binned(MOST_BINS);
        let groups = binned.as_ref().map_or(&[][..], |(_, groups)| groups);
        let key = |g: &Group| Key { name: g.words.clone(), mark: Mark::Square, colour: g.colour };
        let highest = groups.iter().flat_map(|g| g.shares.iter().copied()).fold(0.0, f64::max);
        let upright = Linear { low: 0.0, high: if highest > 0.0 { highest * 1.06 } else { 1.0 } };
        let page = Page {
            title: &self.title,
            caption: &self.caption(),
            keys: &groups.iter().map(key).collect::<Vec<_>>(),
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
        lines.paragraph(&self.caption(), DIM);
        lines.finish()
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

    fn two(relevant: Vec<f64>, others: Vec<f64>) -> Distributions {
        Distributions {
            title: "T".into(),
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
}
