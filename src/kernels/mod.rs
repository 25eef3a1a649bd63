//! The hot loops behind one trait: scalar is the definition of right, SIMD paths are chosen at run time.
