//! Formats on the wire: known frames, frames of another implementation, and random ones.
//!
//! | module | contents |
//! | --- | --- |
//! | [`vectors`] | frames whose CRC is known |
//! | [`transcript`] | frames that Linux' software RoCE sent |
//! | [`random`] | frames that are built are parsed again; frames that are changed are dropped |

mod random;
mod transcript;
mod vectors;

/// Returns the bytes that a text of hexadecimal digits stands for.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |letter: char| letter.to_digit(16).expect("a digit") as u8;
    let digits: Vec<u8> = hex.chars().map(digit).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
