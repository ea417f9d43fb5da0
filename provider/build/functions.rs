// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Functions of libibverbs, called by addresses that the plugin finds when it is loaded. A plugin
//! that were linked against libibverbs would call the system's copy, also when another copy of
//! libibverbs has loaded it, such as that of a Python wheel.

use std::ffi::CString;

use anyhow::{Context, Result};
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::{FnArg, ForeignItem, ForeignItemFn, Item, Pat};

/// Turns each function that the bindings declare into one of the same type that calls an address.
/// `ADDRESSES` has the addresses, `FUNCTIONS` the names in the same order, and the module `indexes`
/// the indexes by name.
pub(crate) fn by_address(bindings: &str) -> Result<String> {
    let file = syn::parse_file(bindings).context("bindgen made no valid Rust")?;
    let mut output = quote!();
    let mut names = Vec::new();
    for item in file.items {
        let Item::ForeignMod(foreign) = item else {
            output.extend(quote!(#item));
            continue;
        };
        for item in foreign.items {
            if let ForeignItem::Fn(function) = item {
                output.extend(caller(&function, names.len())?);
                names.push(function.sig.ident);
            }
        }
    }
    let texts: Vec<_> =
        names.iter().map(|name| CString::new(name.to_string())).collect::<Result<_, _>>()?;
    let texts = texts.iter().map(|text| Literal::c_string(text));
    let (indexes, count) = (0..names.len(), names.len());
    output.extend(quote! {
        pub const FUNCTIONS: [&::std::ffi::CStr; #count] = [#(#texts),*];
        pub static ADDRESSES: [::std::sync::atomic::AtomicPtr<::std::ffi::c_void>; #count] =
            [const { ::std::sync::atomic::AtomicPtr::new(::std::ptr::null_mut()) }; #count];
        pub mod indexes {
            #(pub const #names: usize = #indexes;)*
        }
    });
    Ok(output.to_string())
}

fn caller(function: &ForeignItemFn, index: usize) -> Result<TokenStream> {
    let (name, inputs, output) = (&function.sig.ident, &function.sig.inputs, &function.sig.output);
    let mut arguments = Vec::new();
    let mut types = Vec::new();
    for input in inputs {
        let FnArg::Typed(input) = input else { continue };
        let Pat::Ident(argument) = &*input.pat else { continue };
        arguments.push(&argument.ident);
        types.push(&input.ty);
    }
    // The function that this writes has the requirements of the library's function.
    Ok(quote! {
        pub unsafe extern "C" fn #name(#inputs) #output {
            type Function = unsafe extern "C" fn(#(#types),*) #output;
            let address = ADDRESSES[#index].load(::std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the address is that of the function with this name and type in the library,
            // and the caller keeps its requirements.
            unsafe { ::std::mem::transmute::<_, Function>(address)(#(#arguments),*) }
        }
    })
}
