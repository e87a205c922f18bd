//! What holds for every picture, whatever its data.

use console::measure_text_width;
use proptest::prelude::*;

use super::{
    Bar, BarGroup, BarKind, Bars, Chance, Distributions, HeadSpread, Heatmap, PNG_SCALE, Picture, Scatter,
    Stability, font,
    scene::{Anchor, Area, Scene, Shape},
};
use crate::ids::HeadRef;

/// The box of a text, as wide as it is drawn here.
fn text_box(shape: &Shape) -> Option<(Area, &str)> {
    let Shape::Text { text, at, look } = shape else { return None };
    let long = font::drawn_width(text) * look.em;
    let before = match look.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => long / 2.0,
        Anchor::End => long,
    };
    let (up, down) = (0.72 * look.em, 0.2 * look.em);
    let area = if look.upward {
        Area { x0: at.0 - up, y0: at.1 + before - long, x1: at.0 + down, y1: at.1 + before }
    } else {
        Area { x0: at.0 - before, y0: at.1 - up, x1: at.0 - before + long, y1: at.1 + down }
    };
    Some((area, text))
}

/// Nothing is cut at the page's edge, and no text lies on another.
fn check_scene(scene: &Scene) -> Result<(), String> {
    let page = (f64::from(scene.width), f64::from(scene.height));
    let texts: Vec<(Area, &str)> = scene.shapes.iter().filter_map(text_box).collect();
    for (i, (area, text)) in texts.iter().enumerate() {
        if area.x0 < 0.0 || area.y0 < 0.0 || area.x1 > page.0 || area.y1 > page.1 {
            return Err(format!("{text:?} at {area:?} leaves the page of {page:?}"));
        }
        for (other, words) in &texts[..i] {
            let apart = area.x1 < other.x0 || other.x1 < area.x0 || area.y1 < other.y0 || other.y1 < area.y0;
            if !apart && !text.is_empty() && !words.is_empty() {
                return Err(format!("{text:?} at {area:?} lies on {words:?} at {other:?}"));
            }
        }
    }
    for shape in &scene.shapes {
        let points = match shape {
            Shape::Rect { area, .. } => vec![(area.x0, area.y0), (area.x1, area.y1)],
            Shape::Line { from, to, .. } => vec![*from, *to],
            Shape::Polygon { corners, .. } => corners.clone(),
            Shape::Dot { centre, .. } => vec![*centre],
            Shape::Text { at, .. } => vec![*at],
        };
        let inside =
            |(x, y): &(f64, f64)| (-1.0..=page.0 + 1.0).contains(x) && (-1.0..=page.1 + 1.0).contains(y);
        if !points.iter().all(inside) {
            return Err(format!("{shape:?} leaves the page of {page:?}"));
        }
    }
    Ok(())
}

/// Everything that holds for a picture in all its forms.
fn check(picture: &dyn Picture, width: usize) -> Result<(), String> {
    let scene = picture.scene();
    check_scene(&scene)?;
    let svg = picture.svg();
    let text_elements = svg.matches("<text").count();
    if !svg.starts_with("<svg ") || !svg.trim_end().ends_with("</svg>") {
        return Err("the SVG is not whole".into());
    }
    // the document, its style and texts have an end of their own
    if svg.matches('<').count() != 2 * (text_elements + 2) + svg.matches("/>").count() {
        return Err("an element of the SVG comes from data".into());
    }
    if svg.contains("NaN") || svg.contains("inf\"") || svg.chars().any(|c| c.is_control() && c != '\n') {
        return Err("the SVG holds what no viewer takes".into());
    }
    for colour in [false, true] {
        let text = picture.terminal(width, colour);
        if let Some(line) = text.lines().find(|l| measure_text_width(l) > width) {
            return Err(format!("{line:?} is wider than {width}"));
        }
        let escapes = |c: char| c.is_control() && c != '\n' && !(colour && c == '\x1b');
        if text.contains(escapes) || text.is_empty() {
            return Err(format!("{text:?} commands the terminal"));
        }
    }
    Ok(())
}

/// Size and RGB pixels of a PNG.
fn decoded(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

/// Numbers in 0 to 1 that look random and are always the same.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 24) as f64
    }
}

fn heads(list: &[(u16, u16)]) -> Vec<HeadRef> {
    list.iter().map(|&(layer, head)| HeadRef { layer, head }).collect()
}

/// A map as models have: most heads near 0, more in the middle layers, the marked ones high.
fn heatmap(n_layers: usize, n_heads: usize, marked: &[(u16, u16)]) -> Heatmap {
    let mut next = noise(7);
    let mut values: Vec<f64> = (0..n_layers * n_heads)
        .map(|i| {
            let layer = (i / n_heads) as f64 / n_layers as f64;
            let middle = (-(layer - 0.6).powi(2) / 0.05).exp();
            0.002 + next().powi(6) * (0.02 + 0.2 * middle)
        })
        .collect();
    for (rank, (layer, head)) in marked.iter().enumerate() {
        values[usize::from(*layer) * n_heads + usize::from(*head)] = 0.412 / (1.0 + 0.2 * rank as f64);
    }
    Heatmap {
        title: format!("a-model-{n_layers}x{n_heads}: attention on the answer"),
        subtitle: "Mean over 100 questions; outlined: the heads chosen.".into(),
        chance: None,
        value_name: "mean attention mass on the answer".into(),
        values,
        n_heads,
        marked: heads(marked),
    }
}

fn stability() -> Stability {
    let mut next = noise(3);
    let spread = |i: u16, value: f64| HeadSpread {
        head: HeadRef { layer: (i * 7) % 24, head: (i * 5) % 14 },
        mean: value,
        low: value - 0.02 - 0.1 * value,
        high: value + 0.03 + 0.1 * value,
        top_frequency: 1.0 / (1.0 + (f64::from(i) / 1.4).powi(4)),
    };
    Stability {
        title: "a-model: the best heads, and how sure they are".into(),
        subtitle: "100 questions, 1000 resamples".into(),
        value_name: "mean attention mass on the answer, 95 % interval".into(),
        heads: (0..40).map(|i| spread(i, 0.41 * 0.8_f64.powi(i.into()) + 0.01 * next())).collect(),
        k: 2,
        gap: 0.066,
    }
}

fn distributions() -> Distributions {
    let mut next = noise(11);
    let mut normal = move || (0..12).map(|_| next()).sum::<f64>() - 6.0;
    let relevant = (0..200).map(|_| 0.62 + 0.12 * normal()).collect();
    let others = (0..1800).map(|_| 0.35 + 0.1 * normal()).collect();
    Distributions {
        title: "Scores of relevant chunks and of others".into(),
        subtitle: "L16H7 L14H2 by last/query_free/entropy; chunks of all questions together".into(),
        score_name: "normalised entropy of positive responses".into(),
        groups: vec![("relevant".into(), relevant), ("others".into(), others)],
    }
}

fn bars(n_rows: usize) -> Bars {
    let mut next = noise(5);
    let names = [
        "QRAE, entropy",
        "QRAE, breadth",
        "attention sum",
        "BM25",
        "embedding (cosine)",
        "perplexity",
        "random",
    ];
    let row = |i: usize| {
        let value = 0.93 - 0.43 * i as f64 / n_rows as f64;
        let half = 0.015 + 0.03 * next();
        let label = if i < names.len() { names[i].into() } else { format!("{} at layer {i}", names[i % 7]) };
        let kind = match i {
            0 => BarKind::Main,
            6 => BarKind::Odd,
            _ => BarKind::Plain,
        };
        let detail = if i < 4 { "query_mean/null_query/scaled_sum".into() } else { String::new() };
        Bar { label, detail, value, low: value - half, high: (value + half).min(1.0), kind }
    };
    let mut first: Vec<Bar> = (0..n_rows).map(row).collect();
    let others = first.split_off(2);
    let group = |name: &str, bars| BarGroup { name: name.into(), bars };
    Bars {
        title: "Area under the ROC curve by method, HotpotQA".into(),
        subtitle: "60 questions".into(),
        groups: vec![
            group("", first),
            group("heads chosen on 30 other questions, by AUROC, one row per method", others),
        ],
        unit: "AUROC; whiskers: 95 % over questions".into(),
        mark: Some((0.5, "chance".into())),
        odd: "random sets: whiskers from the 5th to the 95th percentile of 20 sets".into(),
    }
}

fn scatter() -> Scatter {
    let mut next = noise(13);
    let mut point = |g: usize| {
        let tokens = 30.0 + 270.0 * next().powi(2);
        (tokens, (if g == 0 { 0.62 } else { 0.32 }) + 0.0004 * tokens + 0.2 * (next() + next() - 1.0), g)
    };
    Scatter {
        title: "Chunk length and score".into(),
        subtitle: "L16H7 L14H2 by last/query_free/entropy; among other chunks ρ = 0.12 (Spearman)".into(),
        x_name: "chunk length, tokens".into(),
        y_name: "score".into(),
        points: (0..300).map(|i| point(usize::from(i % 6 != 0))).collect(),
        groups: vec!["relevant".into(), "others".into()],
    }
}

/// A picture of each kind as users will see them, with a name.
fn realistic() -> Vec<(&'static str, Box<dyn Picture>)> {
    let crowd: Vec<(u16, u16)> = (0..24).map(|i| (30 + i % 5, (i * 7) % 48)).collect();
    let mut holes = heatmap(24, 14, &[(16, 7)]);
    holes.values.iter_mut().step_by(17).for_each(|v| *v = f64::NAN);
    let mut many = distributions();
    let few = Distributions {
        groups: distributions()
            .groups
            .into_iter()
            .map(|(name, s)| (name, s[..s.len() / 9].to_vec()))
            .collect(),
        ..distributions()
    };
    let chance = Heatmap { chance: Some(Chance { value: 0.1, best: 0.5 }), ..heatmap(24, 14, &[(16, 7)]) };
    many.groups.push(("distractors with a rather long name".into(), vec![0.5, 0.55, 0.6, 0.61, 0.7, 0.72]));
    vec![
        ("heatmap-12x6", Box::new(heatmap(12, 6, &[(5, 2)]))),
        ("heatmap-24x14", Box::new(heatmap(24, 14, &[(16, 7), (14, 2)]))),
        ("heatmap-24x14-chance", Box::new(chance)),
        ("distributions-few", Box::new(few)),
        ("heatmap-24x14-holes", Box::new(holes)),
        ("heatmap-61x48", Box::new(heatmap(61, 48, &[(33, 7), (35, 40)]))),
        ("heatmap-61x48-crowd", Box::new(heatmap(61, 48, &crowd))),
        ("heatmap-80x128", Box::new(heatmap(80, 128, &[(40, 100), (41, 3), (79, 127), (0, 0)]))),
        ("stability", Box::new(stability())),
        ("distributions", Box::new(distributions())),
        ("distributions-3", Box::new(many)),
        ("bars-7", Box::new(bars(7))),
        ("bars-40", Box::new(bars(40))),
        ("scatter", Box::new(scatter())),
        ("no-data", Box::new(Heatmap { values: vec![], ..heatmap(2, 2, &[]) })),
    ]
}

#[test]
fn realistic_pictures_are_whole() {
    for (name, picture) in realistic() {
        for width in [40, 80, 100] {
            check(picture.as_ref(), width).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

/// `QRAE_PLOTS=DIR cargo test --lib plot` leaves the pictures in DIR for people to look at.
#[test]
fn pngs_decode_to_their_size_and_show_something() {
    let folder = std::env::var_os("QRAE_PLOTS").map(std::path::PathBuf::from);
    for (name, picture) in realistic() {
        let bytes = picture.png().unwrap();
        let (width, height, pixels) = decoded(&bytes);
        let (wide, high) = picture.scene().size();
        assert_eq!((width, height), (wide * PNG_SCALE, high * PNG_SCALE), "{name}");
        let ink = pixels.chunks(3).filter(|p| **p != [255, 255, 255]).count();
        assert!(ink > 1000 && ink < pixels.len() / 3, "{name}: {ink} of {} pixels", pixels.len() / 3);
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(format!("{name}.png")), &bytes).unwrap();
            std::fs::write(folder.join(format!("{name}.svg")), picture.svg()).unwrap();
            std::fs::write(folder.join(format!("{name}.txt")), picture.terminal(80, false)).unwrap();
            std::fs::write(folder.join(format!("{name}.ansi")), picture.terminal(80, true)).unwrap();
        }
    }
}

#[test]
fn text_from_outside_stays_text() {
    let evil = "<script>&\"'</svg>\u{1b}[31m\n\u{202e}";
    let mut map = heatmap(3, 3, &[]);
    (map.title, map.value_name) = (evil.into(), evil.into());
    let svg = map.svg();
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;&amp;&quot;&apos;&lt;/svg&gt;"), "{svg}");
    check(&map, 60).unwrap();
    let mut bars = bars(2);
    (bars.title, bars.unit, bars.subtitle, bars.odd) = (evil.into(), evil.into(), evil.into(), evil.into());
    (bars.groups[0].bars[0].label, bars.groups[1].name) = (evil.into(), evil.into());
    bars.groups[0].bars[0].detail = evil.into();
    bars.mark = Some((0.5, evil.into()));
    check(&bars, 60).unwrap();
    let mut spread = distributions();
    (spread.title, spread.score_name, spread.groups[0].0) = (evil.into(), evil.into(), evil.into());
    check(&spread, 60).unwrap();
    let mut points = scatter();
    (points.title, points.x_name, points.groups[0]) = (evil.into(), evil.into(), evil.into());
    check(&points, 60).unwrap();
}

/// Any number, the odd ones often.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -2.0..2.0_f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, 0.0, -0.0, 1e300, 1.0, 1e-9,
        ]),
    ]
}

fn values(most: usize) -> impl Strategy<Value = Vec<f64>> {
    let same = (value(), 0..most).prop_map(|(v, n)| vec![v; n]);
    prop_oneof![3 => prop::collection::vec(value(), 0..most), 1 => same]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z <&>\"']{0,30}",
        ".{0,40}",
        "[a-z]{60,200}",
        "([a-z]{1,9} ){10,80}",
        "[語👩❤\u{fe0f}\u{301}]{0,30}"
    ]
}

fn head() -> impl Strategy<Value = HeadRef> {
    (0..40_u16, 0..40_u16).prop_map(|(layer, head)| HeadRef { layer, head })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_heatmap_is_drawn(
        title in text(), value_name in text(), values in values(400), n_heads in 0..40_usize,
        marked in prop::collection::vec(head(), 0..30), width in 0..130_usize,
        subtitle in text(), chance in prop::option::of((value(), value())),
    ) {
        let chance = chance.map(|(value, best)| Chance { value, best });
        let map = Heatmap { title, subtitle, value_name, chance, values, n_heads, marked: marked.clone() };
        check(&map, width).map_err(TestCaseError::fail)?;
        let layers = if n_heads == 0 { 0 } else { map.values.len().div_ceil(n_heads) };
        let data = map.values.iter().any(|v| v.is_finite());
        for head in marked.iter().filter(|h| usize::from(h.layer) < layers && usize::from(h.head) < n_heads) {
            prop_assert!(!data || map.svg().contains(&format!(">\n{head}\n<")), "{head} is not named");
        }
    }

    #[test]
    fn any_stability_is_drawn(
        title in text(), value_name in text(), k in prop_oneof![0..50_usize, any::<usize>()],
        rows in prop::collection::vec((head(), value(), value(), value(), value()), 0..50),
        subtitle in text(), gap in value(), width in 0..130_usize,
    ) {
        let spread = |(head, mean, low, high, top_frequency)| HeadSpread { head, mean, low, high, top_frequency };
        let heads = rows.into_iter().map(spread).collect();
        check(&Stability { title, subtitle, value_name, heads, k, gap }, width).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_distributions_are_drawn(
        title in text(), subtitle in text(), score_name in text(),
        groups in prop::collection::vec((text(), values(60)), 0..9), width in 0..130_usize,
    ) {
        check(&Distributions { title, subtitle, score_name, groups }, width).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_bars_are_drawn(
        (title, subtitle, unit, odd) in (text(), text(), text(), text()), cut in 0..50_usize,
        mark in prop::option::of((value(), text())), name in text(),
        rows in prop::collection::vec((text(), text(), value(), value(), value(), 0..3_usize), 0..50), width in 0..130_usize,
    ) {
        let kinds = [BarKind::Plain, BarKind::Main, BarKind::Odd];
        let bar = |(label, detail, value, low, high, kind)| Bar { label, detail, value, low, high, kind: kinds[kind] };
        let mut bars: Vec<Bar> = rows.into_iter().map(bar).collect();
        let rest = bars.split_off(cut.min(bars.len()));
        let groups = vec![BarGroup { name, bars }, BarGroup { name: String::new(), bars: rest }];
        check(&Bars { title, subtitle, groups, unit, mark, odd }, width).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_scatter_is_drawn(
        (title, subtitle, x_name, y_name) in (text(), text(), text(), text()), groups in prop::collection::vec(text(), 0..9),
        points in prop::collection::vec((value(), value(), 0..12_usize), 0..80), width in 0..130_usize,
    ) {
        check(&Scatter { title, subtitle, x_name, y_name, points, groups }, width).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn any_png_is_drawn(values in values(60), n_heads in 1..9_usize, marked in prop::collection::vec(head(), 0..4)) {
        let map = Heatmap { values: values.clone(), n_heads, marked, ..heatmap(2, 2, &[]) };
        let (wide, high) = map.scene().size();
        let (width, height, _) = decoded(&map.png().unwrap());
        prop_assert_eq!((width, height), (wide * PNG_SCALE, high * PNG_SCALE));
        let groups = vec![("a".to_owned(), values)];
        let drawn = Distributions { groups, ..distributions() }.png();
        prop_assert!(drawn.is_ok());
    }
}
