"""Values of raw columns: conversion of text and typed columns to checked numbers, ids and times."""
