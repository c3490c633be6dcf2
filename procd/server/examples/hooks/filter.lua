-- jostle-call - /filter WORD... < message: rejects (1) a message whose subject has a word.
local head = body:match("^(.-)\r?\n\r?\n") or body
local subject = ("\n" .. head):lower():match("\nsubject:([^\n]*)") or ""
for _, word in ipairs(args) do
  if subject:find(word, 1, true) then
    print("the subject has " .. word)
    exit(1)
  end
end
