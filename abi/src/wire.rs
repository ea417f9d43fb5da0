// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Declarations that the modules of the formats share.

/// Declares an enum whose values are numbers of the wire format, in ascending order. Each number
/// stands next to its name, once; `from_raw` gives the value of a number.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $raw:ident {
            $($(#[$about:meta])* $value:ident = $number:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($raw)]
        pub enum $name {
            $($(#[$about])* $value = $number,)+
        }

        impl $name {
            /// The value with this number.
            #[inline]
            #[must_use]
            pub const fn from_raw(raw: $raw) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$value),)+
                    _ => None,
                }
            }
        }

        const _: () = {
            let (numbers, mut next) = ([$($number as $raw,)+], 1);
            while next < numbers.len() {
                assert!(numbers[next - 1] < numbers[next], "the numbers do not ascend");
                next += 1;
            }
        };
    };
}
