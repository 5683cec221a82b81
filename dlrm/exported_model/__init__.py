"""Trained models outside training: their files, and scoring of rows in plain torch. Needs no fbgemm."""
