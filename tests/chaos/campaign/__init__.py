"""The verifier's campaign: what is asked, what each answer must score, and what may be left afterwards."""
