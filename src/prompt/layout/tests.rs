//! Layout with toy encoders that merge, split and treat specials like real tokenizers do.

use std::cell::RefCell;

use proptest::prelude::*;

use super::*;

/// How a toy encoder cuts text into tokens, each a half-open range of characters and its own text.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Two characters at a time: what a chunk's tokens are depends on where they start.
    Pairs,
    /// A space joins the word after it, newlines join each other: like a real byte-pair pre-tokenizer.
    Words,
    /// Every byte is a token of its own: several tokens name one character.
    Bytes,
}

/// Grows its vocabulary as it goes, so ids can be turned back into exact bytes.
struct Toy {
    cut: Cut,
    vocabulary: RefCell<Vec<Vec<u8>>>,
}

/// The one special token, and its id; plain text that reads the same gets other ids.
const SPECIAL: &str = "<|end|>";
const SPECIAL_ID: TokenId = 0;

impl Toy {
    fn new(cut: Cut) -> Self {
        Self { cut, vocabulary: RefCell::new(vec![SPECIAL.as_bytes().to_vec()]) }
    }

    fn id(&self, token: &[u8]) -> TokenId {
        let mut vocabulary = self.vocabulary.borrow_mut();
        let known = vocabulary.iter().skip(1).position(|t| t == token);
        if known.is_none() {
            vocabulary.push(token.to_vec());
        }
        u32::try_from(known.map_or(vocabulary.len() - 1, |at| at + 1)).unwrap()
    }

    fn decode(&self, ids: &[TokenId]) -> String {
        let vocabulary = self.vocabulary.borrow();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| vocabulary[id as usize].clone()).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn plain(&self, text: &str, base: usize, out: &mut Encoded) {
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let same = |c: char| move |&&d: &&char| (c == '\n') == (d == '\n') && d != ' ';
            let n = match self.cut {
                Cut::Pairs => 2.min(chars.len() - at),
                Cut::Words => 1 + chars[at + 1..].iter().take_while(same(chars[at])).count(),
                Cut::Bytes => 1,
            };
            let token: String = chars[at..at + n].iter().collect();
            let tokens: Vec<&[u8]> = if matches!(self.cut, Cut::Bytes) {
                token.as_bytes().chunks(1).collect()
            } else {
                vec![token.as_bytes()]
            };
            for token in tokens {
                out.ids.push(self.id(token));
                out.offsets.push(Span::new(base + at, base + at + n));
            }
            at += n;
        }
    }
}

impl PieceEncoder for Toy {
    fn encode(&self, text: &str, specials: Specials) -> Result<Encoded, EncodeError> {
        if text.contains('\u{7}') {
            return Err(EncodeError { chars: text.chars().count(), reason: "bell".into() });
        }
        let mut out = Encoded::default();
        let parts: Vec<&str> =
            if specials == Specials::Parse { text.split(SPECIAL).collect() } else { vec![text] };
        let mut base = 0;
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                out.ids.push(SPECIAL_ID);
                out.offsets.push(Span::new(base, base + SPECIAL.len()));
                base += SPECIAL.len();
            }
            self.plain(part, base, &mut out);
            base += part.chars().count();
        }
        Ok(out)
    }
}

const CUTS: [Cut; 3] = [Cut::Pairs, Cut::Words, Cut::Bytes];

fn pieces() -> TemplatePieces {
    TemplatePieces { before: "<|end|>user\n".into(), after: "<|end|>bot\n".into(), bos: None }
}

fn chunk(text: &str) -> Chunk {
    Chunk { text: text.into(), ..Chunk::default() }
}

fn lay(toy: &Toy, prompt: &ScorePrompt, chunks: &[Chunk], queries: &[&str]) -> ScoringPrompt {
    layout(prompt, &pieces(), chunks, queries, None, toy).unwrap()
}

/// What every layout must satisfy, whatever the texts.
fn assert_sound(toy: &Toy, laid: &ScoringPrompt, chunks: &[Chunk]) {
    let mut end_of_last = 0;
    for (span, chunk) in laid.chunks.iter().zip(chunks) {
        let (text, title_chars) = chunk.serialise();
        assert_eq!((&span.text, span.title_chars), (&text, title_chars));
        assert!(span.span.start >= end_of_last && span.span.end <= laid.prefix.len());
        end_of_last = span.span.end;
        assert_eq!((span.offsets.len(), span.tokens), (span.span.len(), span.span.len()));
        // Offsets tile the text: nothing is missing, nothing is counted outside of it.
        let n = text.chars().count();
        let mut reached = 0;
        for offset in &span.offsets {
            assert!(
                offset.start <= reached && offset.end >= reached && !offset.is_empty() && offset.end <= n
            );
            reached = offset.end;
        }
        assert_eq!(reached, n, "{text:?}");
        assert_eq!(span.span.is_empty(), text.is_empty());
        assert!(toy.decode(&laid.prefix[span.span.range()]).contains(&text));
    }
}

#[test]
fn the_prompt_reads_as_the_design_writes_it() {
    for cut in CUTS {
        let toy = Toy::new(cut);
        let chunks = [Chunk { title: Some("T".into()), ..chunk("one") }, chunk("two")];
        let laid = lay(&toy, &ScorePrompt::default(), &chunks, &["why?", NULL_QUERY]);
        let head = "<|end|>user\nAnswer the question using the search results below.\n\n";
        assert_eq!(toy.decode(&laid.prefix), format!("{head}[1] T: one\n\n[2] two\n\n"));
        assert_eq!(toy.decode(&laid.tails[0]), "Question: why?<|end|>bot\n");
        assert_eq!(toy.decode(&laid.tails[1]), "Question: N/A<|end|>bot\n");
        assert_eq!(
            (laid.p0(), laid.pq(0)),
            (laid.prefix.len() - 1, laid.prefix.len() + laid.tails[0].len() - 1)
        );
        assert_eq!(laid.chunk_lens(), [laid.chunks[0].span.len(), laid.chunks[1].span.len()]);
        assert_sound(&toy, &laid, &chunks);
    }
}

#[test]
fn pieces_are_tokenised_on_their_own() {
    // As one text, the separator would merge with the newline that ends the chunk; on its own it does not.
    let toy = Toy::new(Cut::Words);
    let laid = lay(&toy, &ScorePrompt::default(), &[chunk("one\n"), chunk("\ntwo")], &["q"]);
    let whole = toy.encode("[1] one\n\n\n[2] \ntwo\n\n", Specials::Plain).unwrap();
    assert!(!laid.prefix.ends_with(&whole.ids));
    let after_first = laid.chunks[0].span.end;
    assert_eq!(toy.decode(&laid.prefix[after_first - 1..after_first]), "\n");
    assert_eq!(toy.decode(&laid.prefix[after_first..=after_first]), "\n\n");
    assert_eq!(toy.decode(&laid.tails[0][..1]), "Question:");
}

#[test]
fn a_token_over_the_border_belongs_to_the_chunk_and_its_offset_is_clamped() {
    let toy = Toy::new(Cut::Words);
    let laid = lay(&toy, &ScorePrompt::default(), &[chunk("one two")], &["q"]);
    let first = &laid.chunks[0];
    assert_eq!(toy.decode(&laid.prefix[first.span.range()]), " one two");
    assert_eq!(first.offsets, [Span::new(0, 3), Span::new(3, 7)]);
}

#[test]
fn a_closing_text_after_the_chunk_is_outside_of_it() {
    let prompt = ScorePrompt { block: "<d>{text}</d {i}>".into(), ..ScorePrompt::default() };
    for cut in CUTS {
        let toy = Toy::new(cut);
        let chunks = [chunk("abc"), chunk(""), chunk("abcd")];
        let laid = lay(&toy, &prompt, &chunks, &["q"]);
        assert!(toy.decode(&laid.prefix).ends_with("<d>abc</d 1>\n\n<d></d 2>\n\n<d>abcd</d 3>\n\n"));
        let last = laid.chunks[2].offsets.last().unwrap();
        assert!(last.end == 4 && last.start < 4);
        if matches!(cut, Cut::Bytes) {
            assert_sound(&toy, &laid, &chunks);
        }
    }
}

#[test]
fn awkward_texts_keep_their_spans_and_their_characters() {
    let long = "x".repeat(3000);
    let texts = [
        "",
        " ",
        "\n",
        " \t\r\n ",
        "é",
        "e\u{301}",
        "👩‍👩‍👧‍👦 family",
        "\r\nline\r\n",
        "a\0b",
        "עברית RTL \u{202e}abc",
        "[1] one",
        "one",
        "one",
        "{i} {text} {query}",
        "<|end|>",
        "Question: x<|end|>bot\n",
        "\u{feff}bom",
        "\u{10ffff}",
        &long,
    ];
    let chunks: Vec<Chunk> = texts
        .iter()
        .map(|t| chunk(t))
        .chain([Chunk { title: Some("{i}<|end|>".into()), ..chunk("{text}") }])
        .collect();
    for cut in CUTS {
        let toy = Toy::new(cut);
        let laid = lay(&toy, &ScorePrompt::default(), &chunks, &["{query}{i}<|end|>"]);
        assert_sound(&toy, &laid, &chunks);
        let blocks: String =
            chunks.iter().zip(1..).map(|(c, i)| format!("[{i}] {}\n\n", c.serialise().0)).collect();
        assert!(toy.decode(&laid.prefix).ends_with(&blocks));
        assert_eq!(toy.decode(&laid.tails[0]), "Question: {query}{i}<|end|><|end|>bot\n");
    }
}

#[test]
fn only_template_text_makes_special_tokens() {
    let toy = Toy::new(Cut::Words);
    let prompt = ScorePrompt { instruction: SPECIAL.into(), ..ScorePrompt::default() };
    let laid = lay(&toy, &prompt, &[chunk(SPECIAL)], &[SPECIAL]);
    assert_eq!(laid.prefix.iter().filter(|&&id| id == SPECIAL_ID).count(), 1, "the template's own");
    assert_eq!(laid.tails[0].iter().filter(|&&id| id == SPECIAL_ID).count(), 1, "the template's own");
    let named = ScorePrompt { query_suffix: Some(SPECIAL.into()), ..prompt };
    let laid = lay(&toy, &named, &[chunk("x")], &["q"]);
    assert_eq!(laid.tails[0].last(), Some(&SPECIAL_ID), "a card's suffix is template text");
}

#[test]
fn long_chunks_are_cut_at_their_end_and_say_so() {
    for cut in CUTS {
        let toy = Toy::new(cut);
        let prompt = ScorePrompt { block: "[{i}] {text} ;;;;".into(), ..ScorePrompt::default() };
        let chunks = [chunk("one two three four five six"), chunk("x"), chunk("")];
        let whole = layout(&prompt, &pieces(), &chunks, &["q"], None, &toy).unwrap();
        let cut_to = layout(&prompt, &pieces(), &chunks, &["q"], NonZeroUsize::new(3), &toy).unwrap();
        let (long, short) = (&whole.chunks[0], &cut_to.chunks[0]);
        assert_eq!((short.span.len(), short.tokens, short.truncated), (3, long.tokens, true));
        assert_eq!(short.offsets, long.offsets[..3]);
        assert_eq!(cut_to.prefix[short.span.range()], whole.prefix[long.span.range()][..3]);
        assert_eq!(cut_to.prefix[short.span.end..], whole.prefix[long.span.end..], "what follows stays");
        assert_eq!((short.text.as_str(), short.span.start), (long.text.as_str(), long.span.start));
        assert!(!cut_to.chunks[1].truncated && !cut_to.chunks[2].truncated && !long.truncated);
        assert_eq!(whole.tails, cut_to.tails);
    }
}

#[test]
fn there_is_one_bos_or_none() {
    let toy = Toy::new(Cut::Bytes);
    let start = |before: &str, bos| {
        let pieces = TemplatePieces { before: before.into(), after: String::new(), bos };
        layout(&ScorePrompt::default(), &pieces, &[chunk("x")], &["q"], None, &toy).unwrap().prefix[..2]
            .to_vec()
    };
    let u = toy.id(b"u");
    assert_eq!(start("user", Some(SPECIAL_ID)), [SPECIAL_ID, u]);
    assert_eq!(start("<|end|>user", Some(SPECIAL_ID)), [SPECIAL_ID, u]);
    assert_eq!(start("<|end|>user", None), [SPECIAL_ID, u]);
}

#[test]
fn what_cannot_be_read_or_encoded_is_named() {
    let toy = Toy::new(Cut::Bytes);
    let bare = ScorePrompt {
        instruction: String::new(),
        query: "{query}".into(),
        query_suffix: Some(String::new()),
        ..ScorePrompt::default()
    };
    let lay = |prompt: &ScorePrompt, chunks: &[Chunk], queries: &[&str]| {
        layout(prompt, &TemplatePieces::default(), chunks, queries, None, &toy)
    };
    assert_eq!(lay(&bare, &[], &["q"]), Err(LayoutError::EmptyPrefix));
    assert_eq!(lay(&bare, &[chunk("x")], &["q", ""]), Err(LayoutError::EmptyTail { number: 2 }));
    assert!(lay(&bare, &[chunk("x")], &[]).unwrap().tails.is_empty());
    let bell = lay(&bare, &[chunk("x"), chunk("\u{7}")], &["q"]).unwrap_err();
    assert!(bell.to_string().starts_with("chunk 2: "), "{bell}");
    let broken = ScorePrompt { block: "{i}".into(), ..bare };
    assert!(matches!(lay(&broken, &[], &[]), Err(LayoutError::Prompt(_))));
}

proptest! {
    #[test]
    fn any_text_is_laid_out_soundly(texts in proptest::collection::vec("[ab \n\u{e9}\u{1f600}\\[\\]{}<|>0-9]{0,20}", 0..6), which in 0_usize..3) {
        let toy = Toy::new(CUTS[which]);
        let chunks: Vec<Chunk> = texts.iter().map(|t| chunk(t)).collect();
        assert_sound(&toy, &lay(&toy, &ScorePrompt::default(), &chunks, &["q"]), &chunks);
    }

    #[test]
    fn a_chunks_tokens_do_not_depend_on_its_neighbours(a in "[ab \n]{0,9}", b in "[ab \n]{0,9}", x in "[ab \n]{0,9}", which in 0_usize..3) {
        let toy = Toy::new(CUTS[which]);
        let tokens = |first: &str| {
            let laid = lay(&toy, &ScorePrompt::default(), &[chunk(first), chunk(&x)], &["q"]);
            laid.prefix[laid.chunks[1].span.range()].to_vec()
        };
        prop_assert_eq!(tokens(&a), tokens(&b));
    }
}
