"""What is done to an installation, one module for each kind of harm. Invariant: every choice follows from the seed; every
step waits for something to happen, and what is said to have been done is seen to have had its effect."""
