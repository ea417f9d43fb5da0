//! Formats of the kernel's interfaces.

/// Declares structs of formats that the kernel defines, with their lengths in bytes.
macro_rules! formats {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $type:ty,)+ } = $len:literal;)+) => {$(
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, zerocopy_derive::FromBytes, zerocopy_derive::IntoBytes,
            zerocopy_derive::Immutable,
        )]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names are those of the kernel's fields")]
        pub struct $name { $(pub $field: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = assert!(size_of::<$name>() == $len);
    )+};
}

pub(crate) use formats;
