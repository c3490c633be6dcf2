-- /accept: accepts everything. What a call costs at least.

return 0
