//! A target as typed: its name in the table and what follows the colon.
