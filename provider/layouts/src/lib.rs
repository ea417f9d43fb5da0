// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The layouts of the interface between libibverbs and its plugins. The interface is private to a
//! release of rdma-core. Its number is in the name of the plugin's file (`libvrnic-rdmav34.so`) and
//! in the name of the function that registers a plugin, but it has changed several times without a
//! new number.
//!
//! The plugin is built for release [`BUILT`]. This table lists what is different elsewhere, of all
//! that the plugin touches: the size of two structs, the table of operations, and the arguments of
//! two functions. `scripts/test layouts` compares it with the headers of releases.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::ops::RangeInclusive;

/// The release whose headers the plugin is built with.
pub const BUILT: u32 = 56;
/// Bytes of `struct ibv_context`, which is the last part of `verbs_context` in every release.
pub const IBV_CONTEXT_SIZE: usize = 328;
/// Operations in `verbs_context_ops` of release [`BUILT`]. No later release has removed one.
pub const BUILT_OPS: usize = 76;

/// A layout, of one release or more.
#[derive(Debug)]
pub struct Layout {
    /// The number of the private interface (`IBVERBS_PABI_VERSION`).
    pub number: u32,
    /// The releases that have the layout, by their first numbers.
    pub releases: RangeInclusive<u32>,
    /// Bytes of `verbs_context`, which grows at its start.
    pub context_size: usize,
    /// Bytes of `verbs_qp`, whose first part is the growing `ibv_qp_ex`.
    pub qp_size: usize,
    /// The operations that release [`BUILT`] does not have, by slot.
    pub added_ops: &'static [AddedOp],
    /// True if `ibv_cmd_get_context` has the argument `fd_arr`.
    pub get_context_takes_files: bool,
    /// True if `ibv_cmd_create_cq_ex` has the argument `prov_attr`.
    pub create_cq_ex_takes_memory: bool,
    /// True if `ibv_cmd_create_qp_ex2` has an argument for data of the driver.
    pub create_qp_ex2_takes_data: bool,
    /// A function that releases of this layout export, but no release of an earlier layout with the
    /// same number.
    pub mark: Option<&'static CStr>,
}

/// An operation in `verbs_context_ops` that release [`BUILT`] does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct AddedOp {
    /// The operation's index.
    pub slot: usize,
    /// The operation's field.
    pub name: &'static str,
}

impl Layout {
    /// Returns the offset of `ibv_context` in `verbs_context`.
    #[must_use]
    pub const fn context_offset(&self) -> usize {
        self.context_size - IBV_CONTEXT_SIZE
    }

    /// Returns the offset of the field `sz` in `verbs_context`.
    #[must_use]
    pub const fn context_sz_offset(&self) -> usize {
        self.context_offset() - size_of::<usize>()
    }

    /// Returns the offset of the field `comp_mask` in `verbs_qp`.
    #[must_use]
    pub const fn qp_comp_mask_offset(&self) -> usize {
        // A word and a pointer end the struct.
        self.qp_size - 16
    }

    /// Returns whether `ibv_qp_ex` has the field `wr_atomic_write`.
    #[must_use]
    pub const fn has_atomic_write(&self) -> bool {
        *self.releases.start() >= 44
    }

    /// Returns whether `ibv_qp_ex` has the field `wr_flush`.
    #[must_use]
    pub const fn has_flush(&self) -> bool {
        *self.releases.start() >= 45
    }

    /// Returns the operations in `verbs_context_ops`.
    #[must_use]
    pub const fn ops(&self) -> usize {
        BUILT_OPS + self.added_ops.len()
    }
}

const fn op(slot: usize, name: &'static str) -> AddedOp {
    AddedOp { slot, name }
}

/// A layout like release [`BUILT`], from which the others differ.
const LIKE_BUILT: Layout = Layout {
    number: 34,
    releases: 45..=56,
    context_size: 648,
    qp_size: 376,
    added_ops: &[],
    get_context_takes_files: false,
    create_cq_ex_takes_memory: false,
    create_qp_ex2_takes_data: false,
    mark: None,
};

/// All layouts that the plugin knows, by release.
pub static LAYOUTS: [Layout; 8] = [
    Layout { releases: 36..=43, qp_size: 360, ..LIKE_BUILT },
    // `wr_atomic_write` is new in ibv_qp_ex.
    Layout { releases: 44..=44, qp_size: 368, ..LIKE_BUILT },
    // `wr_flush` is new in ibv_qp_ex.
    LIKE_BUILT,
    Layout { number: 57, releases: 57..=58, get_context_takes_files: true, ..LIKE_BUILT },
    Layout {
        number: 59,
        releases: 59..=61,
        context_size: 672,
        added_ops: &[op(2, "alloc_dmah"), op(26, "dealloc_dmah"), op(71, "reg_mr_ex")],
        get_context_takes_files: true,
        create_cq_ex_takes_memory: true,
        ..LIKE_BUILT
    },
    Layout {
        number: 59,
        releases: 62..=63,
        context_size: 680,
        added_ops: &[
            op(2, "alloc_dmah"),
            op(26, "dealloc_dmah"),
            op(41, "dm_export_dmabuf_fd"),
            op(64, "query_port_speed"),
            op(73, "reg_mr_ex"),
        ],
        get_context_takes_files: true,
        create_cq_ex_takes_memory: true,
        mark: Some(c"ibv_cmd_query_port_speed"),
        ..LIKE_BUILT
    },
    Layout {
        number: 64,
        releases: 64..=64,
        context_size: 696,
        added_ops: &[
            op(1, "alloc_buf"),
            op(3, "alloc_dmah"),
            op(27, "dealloc_dmah"),
            op(42, "dm_export_dmabuf_fd"),
            op(43, "free_buf"),
            op(66, "query_port_speed"),
            op(75, "reg_mr_ex"),
        ],
        get_context_takes_files: true,
        create_cq_ex_takes_memory: true,
        create_qp_ex2_takes_data: true,
        ..LIKE_BUILT
    },
    Layout {
        number: 65,
        releases: 65..=65,
        context_size: 696,
        added_ops: &[
            op(1, "alloc_buf"),
            op(3, "alloc_dmah"),
            op(16, "create_comp_cntr"),
            op(28, "dealloc_dmah"),
            op(34, "destroy_comp_cntr"),
            op(44, "dm_export_dmabuf_fd"),
            op(45, "free_buf"),
            op(52, "inc_comp_cntr"),
            op(53, "inc_err_comp_cntr"),
            op(67, "qp_attach_comp_cntr"),
            op(68, "query_comp_cntr_caps"),
            op(72, "query_port_speed"),
            op(77, "read_comp_cntr"),
            op(79, "read_err_comp_cntr"),
            op(83, "reg_mr_ex"),
            op(87, "set_comp_cntr"),
            op(89, "set_err_comp_cntr"),
        ],
        get_context_takes_files: true,
        create_cq_ex_takes_memory: true,
        create_qp_ex2_takes_data: true,
        ..LIKE_BUILT
    },
];

/// The largest `verbs_context`.
pub const MAX_CONTEXT_SIZE: usize = 696;
/// The most operations.
pub const MAX_OPS: usize = 93;

/// Returns the numbers of private interfaces. Each is in the name of a file of the plugin.
pub fn numbers() -> impl Iterator<Item = u32> {
    let mut last = 0;
    LAYOUTS
        .iter()
        .map(|layout| layout.number)
        .filter(move |number| std::mem::replace(&mut last, *number) != *number)
}

/// What a plugin can find out about the libibverbs that has loaded it.
#[derive(Debug)]
pub struct Seen<M> {
    /// The number of the private interface.
    pub number: u32,
    /// The offset of `comp_mask` in `verbs_qp`.
    pub comp_mask: usize,
    /// The release in the name of its file, if that has one.
    pub release: Option<u32>,
    /// Tells whether the library exports a function.
    pub exports: M,
}

/// Returns the layout of a library; `None` if the plugin does not know it.
pub fn find(seen: &Seen<impl Fn(&CStr) -> bool>) -> Option<&'static Layout> {
    let same = |layout: &&Layout| {
        layout.number == seen.number
            && layout.qp_comp_mask_offset() == seen.comp_mask
            && layout.mark.is_none_or(&seen.exports)
    };
    let layout = LAYOUTS.iter().rev().find(same)?;
    seen.release.is_none_or(|release| layout.releases.contains(&release)).then_some(layout)
}

/// Returns the offset of `comp_mask` in `verbs_qp`, by trial: `has_mask` tells whether the library
/// reads the mask at this offset.
pub fn find_comp_mask(has_mask: impl Fn(usize) -> bool) -> Option<usize> {
    LAYOUTS.iter().map(Layout::qp_comp_mask_offset).find(|offset| has_mask(*offset))
}

/// Returns the release in the name of libibverbs' file, which follows the two numbers of the
/// library itself: `libibverbs.so.1.14.56.1` has release 56, and so has a copy in a Python wheel,
/// such as `libibverbs-1de1263b.so.1.14.56.1`.
#[must_use]
pub fn release(name: &str) -> Option<u32> {
    let (_, version) = name.strip_prefix("libibverbs")?.split_once(".so.")?;
    version.split('.').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for pair in LAYOUTS.windows(2) {
            assert_eq!(pair[0].releases.end() + 1, *pair[1].releases.start());
            assert!(pair[0].number <= pair[1].number);
        }
        assert!(LAYOUTS.iter().any(|layout| layout.releases.contains(&BUILT)));
        assert_eq!(LAYOUTS.iter().map(|layout| layout.context_size).max(), Some(MAX_CONTEXT_SIZE));
        assert_eq!(LAYOUTS.iter().map(Layout::ops).max(), Some(MAX_OPS));
        for layout in &LAYOUTS {
            assert!(layout.added_ops.is_sorted_by_key(|op| op.slot), "{layout:?}");
            assert!(layout.added_ops.iter().all(|op| op.slot < layout.ops()), "{layout:?}");
        }
    }

    #[test]
    fn names_of_files_have_a_release() {
        assert_eq!(release("libibverbs.so.1.14.56.1"), Some(56));
        assert_eq!(release("libibverbs-1de1263b.so.1.14.48.0"), Some(48));
        assert_eq!(release("libibverbs.so.1.15.65.0"), Some(65));
        for name in ["libibverbs.so.1", "libibverbs.so.1.14", "libmlx5.so.1.14.48.0", "python3"] {
            assert_eq!(release(name), None, "{name}");
        }
    }

    /// Returns the releases of the layout that is found.
    fn found(
        number: u32,
        comp_mask: usize,
        release: Option<u32>,
        exported: &CStr,
    ) -> Option<RangeInclusive<u32>> {
        let exports = |name: &CStr| name == exported;
        find(&Seen { number, comp_mask, release, exports }).map(|layout| layout.releases.clone())
    }

    /// Shows: programs: the layout of a libibverbs is known by what it does
    #[test]
    fn a_library_is_known_by_what_it_does() {
        let speed = c"ibv_cmd_query_port_speed";
        assert_eq!(found(34, 344, None, c""), Some(36..=43));
        assert_eq!(found(34, 352, Some(44), c""), Some(44..=44));
        assert_eq!(found(34, 360, Some(48), c""), Some(45..=56));
        assert_eq!(found(59, 360, None, c""), Some(59..=61));
        assert_eq!(found(59, 360, None, speed), Some(62..=63));
        assert_eq!(found(65, 360, Some(65), speed), Some(65..=65));
        assert_eq!(found(66, 360, None, speed), None, "an unknown number");
        assert_eq!(found(65, 360, Some(66), speed), None, "a later release");
        assert_eq!(found(34, 344, Some(56), c""), None, "a release that contradicts");
        assert_eq!(found(34, 344, Some(35), c""), None, "an earlier release");
    }

    #[test]
    fn the_mask_is_found_by_trial() {
        assert_eq!(find_comp_mask(|offset| offset == 352), Some(352));
        assert_eq!(find_comp_mask(|_| false), None);
    }
}
