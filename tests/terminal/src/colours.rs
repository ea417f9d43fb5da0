//! The colours of terminals.

use vt100::Color;

/// A mixture of red, green and blue.
pub(crate) type Rgb = [u8; 3];

/// The 16 colours that have names, as a dark terminal shows them.
const NAMED: [Rgb; 16] = [
    [0x3b, 0x42, 0x52],
    [0xe0, 0x6c, 0x75],
    [0x98, 0xc3, 0x79],
    [0xe5, 0xc0, 0x7b],
    [0x61, 0xaf, 0xef],
    [0xc6, 0x78, 0xdd],
    [0x56, 0xb6, 0xc2],
    [0xd8, 0xde, 0xe9],
    [0x7b, 0x84, 0x94],
    [0xff, 0x7b, 0x86],
    [0xb1, 0xe0, 0x8b],
    [0xff, 0xd7, 0x87],
    [0x7c, 0xc4, 0xff],
    [0xdd, 0x8f, 0xf2],
    [0x6f, 0xd3, 0xe0],
    [0xff, 0xff, 0xff],
];

/// Returns the mixture of a colour, or nothing for the one that a terminal has by default.
pub(crate) fn of(colour: Color) -> Option<Rgb> {
    match colour {
        Color::Default => None,
        Color::Idx(index) => Some(NAMED.get(usize::from(index)).copied().unwrap_or(mixed(index))),
        Color::Rgb(red, green, blue) => Some([red, green, blue]),
    }
}

/// Returns one of the colours from 16 on: a cube with six steps a side, then greys.
fn mixed(index: u8) -> Rgb {
    let step = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
    match index.saturating_sub(16) {
        cube @ ..216 => [cube / 36, cube / 6 % 6, cube % 6].map(step),
        grey => [8 + 10 * (grey - 216); 3],
    }
}

/// Returns the name of a colour in CSS.
pub(crate) fn name([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_with_numbers_are_those_of_xterm() {
        let named = |index| of(Color::Idx(index)).map(name);
        for (index, expected) in
            [(1, "#e06c75"), (16, "#000000"), (196, "#ff0000"), (231, "#ffffff"), (255, "#eeeeee")]
        {
            assert_eq!(named(index).as_deref(), Some(expected), "colour {index}");
        }
        assert_eq!(of(Color::Default), None);
    }
}
