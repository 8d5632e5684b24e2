# The demo's commands, each below its title, run one after another by run.py. In brackets: about how many seconds a
# command takes, whether its output goes to its log only, and after which training step it is killed.
# $WINDOW is the number of a window with a handful of pieces from both sources.

# Text of two sources, a tokenizer trained on it, the config of a tiny LLaMA [12 s]
python examples/demo/prepare.py --output runs/demo/start

# Tokenize, and pack windows of 128 tokens [14 s]
anchorcontext pack data=demo_128 page=false

# Pack windows of 4,096 from the same tokens [4 s]
anchorcontext pack data=demo_4096 page=false

# Look at a window and at its mask [8 s]
anchorcontext inspect data=demo_4096 window=$WINDOW max_pieces=3 boundary_tokens=2 picture=runs/demo/mask.png

# Train the base at 128 tokens, on 2 ranks [100 s, log only]
torchrun --nproc-per-node 2 -m anchorcontext.train experiment=demo_base

# Extend it to 4,096 tokens, 2 ranks sharing each window; kill it half-way [51 s, log only, killed after step 20]
torchrun --nproc-per-node 2 -m anchorcontext.train experiment=demo_extend

# The same command again: it goes on from its last checkpoint [66 s, log only]
torchrun --nproc-per-node 2 -m anchorcontext.train experiment=demo_extend

# The control: as many extra tokens at 128 [54 s, log only]
torchrun --nproc-per-node 2 -m anchorcontext.train experiment=demo_control

# Loss by position of all three on held-out text [28 s]
torchrun --nproc-per-node 2 -m anchorcontext.evaluate data=demo_4096 windows=8 output=runs/demo/evaluation \
  '+models={base: runs/demo/base/hf/step-000400, extended: runs/demo/extend/hf/step-000040, control: runs/demo/control/hf/step-000040}'

# One page of all of it [10 s]
anchorcontext report 'title="AnchorContext demo: from 128 to 4,096 tokens"' \
  +evaluations.demo=runs/demo/evaluation \
  '+runs={base: runs/demo/base, extended: runs/demo/extend, control: runs/demo/control}' \
  '+pictures={The attention mask of a training window: runs/demo/mask.png}' \
  '+indexes={long: runs/demo/data/index-4096, short: runs/demo/data/index-128}' \
  output=runs/demo/report
