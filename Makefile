# One-liners; each sets up what it needs.
.PHONY: check check-root demo
check:
	tests/run
check-root:
	sudo tests/run
demo:
	sudo netns-lab/lab demo
