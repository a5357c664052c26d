// Package torchfile reads the state dicts that torch.save writes (pytorch_model.bin, *.pt, *.pth): a zip archive of
// one pickle and the raw bytes of each storage.
//
// The archive must be what torch.save makes: entries stored uncompressed, under one folder, within the file and
// without overlaps. So its tensors are read in place and nothing can unpack to more than the file holds. The pickle
// is read as data by package pickle with an allow-list; nothing is executed.
package torchfile
