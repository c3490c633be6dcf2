//! What workers record of their operations in their pages, whatever carries them:
//! [`recorder`] that of `contend`, [`tally`] that of `stream` and `hold`.

pub mod recorder;
pub mod tally;
