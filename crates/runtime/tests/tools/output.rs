//! Bounds of text, and characters at the edges of chunks.

use zeroclaw_runtime::tool::output::{BoundedText, Utf8Stream, bounded};

#[test]
fn text_within_the_limit_is_kept_as_it_is() {
    for text in ["", "a", "grün", &"x".repeat(1000)] {
        assert_eq!(bounded(text, 1000), text);
    }
}

#[test]
fn longer_text_keeps_head_and_tail_and_says_how_much_there_was() {
    let text: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    let kept = bounded(&text, 1000);
    assert!(kept.len() <= 1000, "{}", kept.len());
    assert!(kept.starts_with("0\n1\n2\n") && kept.ends_with("9998\n9999\n"), "{kept}");
    assert!(kept.contains(&format!("bytes cut ({} bytes in all)", text.len())), "{kept}");
}

#[test]
fn the_size_of_the_pieces_makes_no_difference_to_the_bound() {
    for piece in [1, 7, 64, 5000] {
        let text = "äöü€😀\n".repeat(3000);
        let mut out = BoundedText::new(500);
        let characters: Vec<char> = text.chars().collect();
        for chunk in characters.chunks(piece) {
            out.push(&chunk.iter().collect::<String>());
        }
        assert_eq!(out.total(), text.len() as u64);
        let kept = out.finish();
        assert!(kept.len() <= 500 && kept.starts_with("äöü") && kept.ends_with("😀\n"), "{piece}: {kept}");
    }
}

#[test]
fn characters_survive_every_cut_between_chunks() {
    let text = "a€😀é\n";
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let mut stream = Utf8Stream::default();
            let mut seen = String::new();
            for range in [0..first, first..second, second..text.len()] {
                seen.push_str(&stream.push(&text.as_bytes()[range]));
            }
            seen.push_str(stream.finish());
            assert_eq!(seen, text);
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_marked() {
    let mut stream = Utf8Stream::default();
    assert_eq!(stream.push(b"caf\xe9 \xff\xe2\x82"), "caf\u{fffd} \u{fffd}");
    assert_eq!(stream.push(b"x\xe2"), "\u{fffd}x");
    assert_eq!(stream.finish(), "\u{fffd}");
}
