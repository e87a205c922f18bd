//! Search results as numbered lists: `1. [title](url)`, and on the lines after it what is known of the page.

use super::{Groups, group};
use crate::prompt::layout::Chunk;

/// What stands on a line of its own between the lists of several queries.
const BETWEEN: &str = "=======";

/// The results in `text`, if there are some. What comes before the first entry of a list is a heading.
pub(super) fn read(text: &str) -> Option<Groups> {
    let mut lists: Vec<Vec<Chunk>> = vec![Vec::new()];
    let mut open = false;
    for line in text.lines() {
        if line.trim() == BETWEEN {
            lists.push(Vec::new());
            open = false;
        } else if let Some((title, url)) = entry(line) {
            let chunk = Chunk { id: None, title: Some(title), url: Some(url), text: String::new() };
            lists.last_mut()?.push(chunk);
            open = true;
        } else if open && let Some(chunk) = lists.last_mut().and_then(|list| list.last_mut()) {
            chunk.text.push_str(line);
            chunk.text.push('\n');
        }
    }
    for chunk in lists.iter_mut().flatten() {
        chunk.text = chunk.text.trim().to_owned();
    }
    let found = lists.iter().any(|list| !list.is_empty());
    found.then(|| lists.into_iter().map(|results| group(None, results)).collect())
}

/// `12. [title](url)`; titles may hold brackets.
fn entry(line: &str) -> Option<(String, String)> {
    let (number, rest) = line.trim().split_once(". [")?;
    let number_fits = (1..=4).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    let (title, url) = rest.strip_suffix(')')?.rsplit_once("](")?;
    (number_fits && !url.contains(char::is_whitespace)).then(|| (title.trim().into(), url.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
A search for 'who built it' found 2 results:

## Web Results
1. [Town hall [pdf] (old)](https://x.org/a_(b))
Date published: 2001
Source: x.org
Anna built it.

In 1901.

2. [B](http://y)
=======
A search for 'Bern' found 1 results:
1. [Bern](http://z)
A town.";

    #[test]
    fn entries_have_title_address_and_the_lines_after_them() {
        let groups = read(PRINTED).unwrap();
        let told: Vec<Vec<_>> = groups
            .iter()
            .map(|g| {
                g.results
                    .iter()
                    .map(|c| (c.title.as_deref().unwrap(), c.url.as_deref().unwrap(), &*c.text))
                    .collect()
            })
            .collect();
        let first = "Date published: 2001\nSource: x.org\nAnna built it.\n\nIn 1901.";
        assert_eq!(told[0], [("Town hall [pdf] (old)", "https://x.org/a_(b)", first), ("B", "http://y", "")]);
        assert_eq!(told[1], [("Bern", "http://z", "A town.")]);
    }

    #[test]
    fn other_lists_are_none() {
        for text in
            ["", "1. one\n2. two", "x. [a](b)", "1. [a](b c)", "1. [a] (b)", "12345. [a](b)", "see [a](b)"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
