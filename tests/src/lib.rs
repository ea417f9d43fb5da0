//! Whole-system tests of vrnic
