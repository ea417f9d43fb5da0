//! The lines and the end of a command's output.

use std::collections::VecDeque;

/// Maximum number of bytes of an output's end.
const TAIL: usize = 16 << 10;
/// Maximum number of bytes of a line. What follows is another line.
const LINE: usize = 64 << 10;

/// Cuts output into lines.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Takes output, and passes the lines that are complete to `each`.
    pub fn take(&mut self, data: &[u8], mut each: impl FnMut(&str)) {
        for byte in data {
            match byte {
                b'\n' => self.end(&mut each),
                byte => self.0.push(*byte),
            }
            if self.0.len() >= LINE {
                self.end(&mut each);
            }
        }
    }

    /// Passes what has come without the end of a line to `each`.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.0.is_empty() {
            self.end(&mut each);
        }
    }

    /// Returns what has come without the end of a line.
    #[must_use]
    pub fn rest(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    fn end(&mut self, each: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.0);
        each(String::from_utf8_lossy(&line).trim_end_matches('\r'));
    }
}

/// The end of an output.
#[derive(Debug, Default)]
pub struct Tail(VecDeque<u8>);

impl Tail {
    /// Takes output.
    pub fn take(&mut self, data: &[u8]) {
        let data = data.get(data.len().saturating_sub(TAIL)..).unwrap_or_default();
        self.0.extend(data);
        let surplus = self.0.len().saturating_sub(TAIL);
        self.0.drain(..surplus);
    }

    /// Returns the text, from the first whole line on if the beginning is missing.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match text.split_once('\n') {
            Some((_, rest)) if bytes.len() == TAIL => rest.to_owned(),
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_come_in_pieces_are_whole() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in ["one\ntw", "o\r\n", "\nthr", "ee"] {
            lines.take(piece.as_bytes(), |line| found.push(line.to_owned()));
        }
        assert_eq!(lines.rest(), "three");
        lines.finish(|line| found.push(line.to_owned()));
        assert_eq!(found, ["one", "two", "", "three"]);
    }

    #[test]
    fn output_without_an_end_of_line_is_cut() {
        let (mut lines, mut found) = (Lines::default(), 0);
        lines.take(&vec![b'x'; 2 * LINE], |_| found += 1);
        assert_eq!((found, lines.rest()), (2, String::new()));
    }

    #[test]
    fn the_tail_has_whole_lines_of_the_end() {
        let mut tail = Tail::default();
        tail.take(b"short\n");
        assert_eq!(tail.text(), "short\n");
        for number in 0..10_000 {
            tail.take(format!("line {number}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= TAIL && text.ends_with("line 9999\n"), "{}", text.len());
        assert!(text.starts_with("line "), "{}", &text[..20]);
    }
}
