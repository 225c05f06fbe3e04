"""Train on the digits on one device:  python single.py

ddp.py beside it is the same script on many devices. Compare them line by line.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader

from course_lib import load_digits

EPOCHS, BATCH = 4, 64
digits, test = load_digits(), load_digits(train=False)

on_gpu = torch.cuda.is_available()
device = torch.device("cuda" if on_gpu else "cpu")

loader = DataLoader(digits, BATCH, shuffle=True, drop_last=True, pin_memory=on_gpu)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = ExponentialLR(optimizer, gamma=0.9)

for epoch in range(EPOCHS):
    model.train()
    for images, labels in loader:
        # From pinned memory the copies are only queued; the host does not wait for them.
        images, labels = (t.to(device, non_blocking=True) for t in (images, labels))
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()

    model.eval()
    with torch.no_grad():
        images, labels = test[:]
        right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
    print(f"epoch {epoch}  test accuracy {right.item() / len(test):.4f}", flush=True)

parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
state = {name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch}
torch.save(state, "digits.pt")
