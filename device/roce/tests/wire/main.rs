//! Formats on the wire: known frames, frames of rxe, and random frames.
//!
//! | module | contents |
//! | --- | --- |
//! | [`vectors`] | frames whose CRC is known |
//! | [`transcript`] | frames of Linux' software RoCE |
//! | [`random`] | frames that are built and parsed again; frames that are changed and dropped |

mod random;
mod transcript;
mod vectors;

/// Returns the bytes of a text of hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |letter: char| letter.to_digit(16).expect("a digit") as u8;
    let digits: Vec<u8> = hex.chars().map(digit).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
