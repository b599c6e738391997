-- A book's document tree without what teaches nothing, in elements that plain Markdown can write.
-- Each piece that is taken out is one JSON line on standard error: {"reason": ..., "text": ...}.

local stringify = pandoc.utils.stringify

local function set(words)
  local names = {}
  for name in words:gmatch("%s*([^,]+)") do names[name] = true end
  return names
end

local LICENCE_WORDS = { "licensed under", "creative commons", "permission is granted to copy", "all rights reserved" }
local LICENCE_OBJECTS = {
  "this work", "this book", "this website", "this text", "this document", "this material", "textbook content",
  "is licensed under", "all rights reserved", "this manual",
}
local LICENCE_CHARS = 700
local STEPS = set("top, up, next, prev, previous, home, contents, back, to, index, page, the, of, table, start, begin, "
  .. "edit, this, on, github, chapter, section, toc")
local CALLS = set("top, up, next, prev, previous, home, back, edit, discussions, open in colab, download notebook")
local ARROWS = set("⇡, ⇣, ↑, ←, →, «, »")
local ASIDE = set("nav, toc, footer, navbar, breadcrumb, navigation, navheader, navfooter, page-footer, site-footer, "
  .. "pagenum, pageno, page-number, pagebreak")

local function removed(reason, text)
  if text:match("%S") then
    io.stderr:write("REMOVED " .. pandoc.json.encode({ reason = reason, text = text }) .. "\n")
  end
end

local function aside(attributes)
  local role = attributes.attributes.role or attributes.attributes["epub:type"] or ""
  if role:match("navigation") or role:match("doc%-toc") or role:match("contentinfo") or role:match("pagebreak") then return true end
  for _, class in ipairs(attributes.classes) do
    if ASIDE[class:lower()] then return true end
  end
  return false
end

-- The way from the first page to this one: links with signs of steps between them, or behind "you are here".
local function is_path(inlines)
  local links = 0
  local rest = stringify(pandoc.Inlines(inlines):walk({ Link = function() links = links + 1 return {} end }))
  local steps = select(2, rest:gsub("[›‣»→▸>]", ""))
  local words = rest:lower():gsub("you are here", "")
  return links > 0 and (rest ~= stringify(inlines)) and (words ~= rest:lower() or links > 1 and steps > 0)
    and not words:match("[%w]")
end

-- A sign without words, such as a row of stars; or the number of a paragraph, which is a link to it.
local function is_furniture(inlines)
  local text = stringify(inlines)
  inlines = inlines:filter(function(inline) return inline.t ~= "RawInline" end)
  if #inlines == 1 and inlines[1].t == "Link" and inlines[1].target:match("#") then return text:match("^[%d§¶#]+$") ~= nil end
  for _, inline in ipairs(inlines) do
    if inline.t ~= "Str" and inline.t ~= "Space" and inline.t ~= "SoftBreak" and inline.t ~= "Link" then return false end
  end
  if text:match("[%w]") then return false end
  for _, code in utf8.codes(text) do
    if code > 127 and code ~= 0xA0 and (code < 0x2000 or code > 0x2BFF) then return false end
  end
  return text:match("[\128-\255]") ~= nil
end

-- A line of links: every word outside of links, and at least one of them inside, is one of those that lead around.
local function is_navigation(inlines)
  local calls, links, others = false, 0, false
  local walked = pandoc.Inlines(inlines):walk({
    Link = function(link)
      links = links + 1
      local said = stringify(link):lower()
      if CALLS[said] or said:match("^back to") or ARROWS[said] then calls = true end
      return {}
    end,
  })
  local rest = stringify(walked):lower():gsub("\194\160", " "):gsub("[|]", " ")
  for word in rest:gmatch("[%w\128-\255]+") do
    if CALLS[word] then calls = true elseif not STEPS[word] then others = true end
  end
  return links > 0 and calls and not others
end

local function says(text, words)
  for _, each in ipairs(words) do
    if text:find(each, 1, true) then return true end
  end
  return false
end

local function is_licence(text)
  if #text > LICENCE_CHARS then return false end
  local said = text:lower()
  if says(said, LICENCE_WORDS) and says(said, LICENCE_OBJECTS) then return true end
  return said:match("^%s*©") ~= nil or said:match("^%s*copyright %(c%) ") ~= nil or said:match("^%s*copyright ©") ~= nil
end

local BLANK = { SoftBreak = true, Space = true, LineBreak = true }

local GARBLED = "<!-- garbled formula -->"

-- Programs for formulas leave a metafile of each in a word processor's text: it cannot be read, and a sentence without
-- it says something else.
local function formulas(inlines)
  local words = false
  for _, inline in ipairs(inlines) do words = words or inline.t == "Str" end
  return inlines:walk({
    Image = function(image)
      -- An embedded object has no size; a picture that was placed by hand has one.
      local drawn = image.src:lower():match("%.[we]mf$")
      if drawn and (words or not image.attributes.width) then return pandoc.RawInline("html", GARBLED) end
    end,
  })
end

local function picture(image)
  local class = table.concat(image.classes, " ")
  local alt = stringify(image.caption)
  if alt ~= "" and (class:match("math") or class:match("tex") or class:match("latex")) then
    return pandoc.Math("InlineMath", alt)
  end
  removed("image", alt ~= "" and alt ~= "image" and alt or image.src)
  return {}
end

local function raised(mark)
  return function(element)
    local text = stringify(element)
    if text:match("^[%w%+%-−=%(%),%.]+$") and not text:match("^%l%l$") and text ~= "TM" then
      return pandoc.Math("InlineMath", mark .. "{" .. text:gsub("−", "-") .. "}")
    end
    return element.content
  end
end

local FORMULAS = set("equation, align, gather, multline, eqnarray, alignat, flalign, displaymath, aligned, cases, split")

local function raw(element)
  if element.text == GARBLED then return element end
  if element.t == "RawInline" and element.text:match("^<img%s") then
    return pandoc.utils.blocks_to_inlines(pandoc.read(element.text, "html").blocks:walk({ Image = picture }))
  end
  local environment = element.text:match("^%s*\\begin{(%a+)%*?}")
  if environment and FORMULAS[environment] then
    local formula = pandoc.Math("DisplayMath", element.text:gsub("\n%s*\n", "\n"))
    return element.t == "RawBlock" and pandoc.Para({ formula }) or formula
  end
  if not element.text:match("^%s*<!%-%-") then removed("markup", element.text) end
  return {}
end

-- Emphasis within emphasis would be written as its end, and a display formula in it would stay in the sentence.
local function flat(kind)
  return function(element)
    local displayed = false
    element.content = element.content:walk({
      [kind] = function(each) return each.content end,
      Math = function(math) displayed = displayed or math.mathtype == "DisplayMath" end,
    })
    return displayed and element.content or element
  end
end

-- A numbered statement has its number as the name of its division: pandoc counts anew in each part.
local function statement(div)
  local number, first = div.identifier:match("^=(.+)"), div.content[1]
  local title = first and first.t == "Para" and first.content[1]
  if number and title and title.t == "Strong" then
    title.content[#title.content] = pandoc.Str(number)
    first.content[1] = title
    div.content[1] = first
    return div
  end
end

-- pandoc does not know the commands of pseudocode, and leaves it without conditions and lines. Numbered statements and
-- listings can be in environments of the same names.
local function pseudocode(div)
  local name = div.classes[1] or ""
  if not name:match("^algorithm[2ice]*%*?$") or div.identifier:match("^=") then return nil end
  local listing = false
  div:walk({ CodeBlock = function() listing = true end })
  if listing then return nil end
  local text = stringify(div)
  removed("pseudocode", text:match("%S") and text or name)
  return {}, false
end

local STATEMENTS = set("answer, axiom, claim, conjecture, corollary, definition, example, exercise, hint, lemma, note, "
  .. "problem, proof, proposition, question, remark, solution, theorem, tip, warning")

-- Arguments of an environment that pandoc does not know run into its text, and a statement loses its name.
local function environment(div)
  local first = div.content[1]
  if not div.classes[1] or not first or first.t ~= "Para" and first.t ~= "Plain" then return nil end
  local name, made = div.classes[1]:gsub("%*$", ""), pandoc.Blocks({})
  local start = first.content[1]
  if STATEMENTS[name] and start and start.t ~= "Strong" and start.t ~= "Emph" then
    made:insert(pandoc.Para({ pandoc.Strong(name:gsub("^%l", string.upper)) }))
  end
  while start and (start.t == "Span" and start.identifier == "" and #start.classes == 0 or BLANK[start.t]) do
    first.content:remove(1)
    local text = stringify(start)
    if text:match("^%S*[:_]%S*$") or text:match("^[%d.]+%a*$") then
      removed("markup", text)
    elseif text:match("%S") then
      made:insert(pandoc.Para(start.content))
    end
    start = first.content[1]
  end
  if #made == 0 then return nil end
  div.content[1] = first
  if not start then div.content:remove(1) end
  div.content = made .. div.content
  return div
end

local OBJECTS = set("attribute, class, data, exception, function, method, module, option")

-- Of a directive that pandoc does not know it keeps the name of a video or a quiz, and loses the answers in its options.
local function directive(div)
  local first, class = div.content[1], div.classes[1] or ""
  local name = first and first.t == "Para" and #first.content == 1 and stringify(first) or ""
  if #div.attributes > 0 and name:match("^[%w_-]*[%d_][%w_-]*$") and not OBJECTS[class] and not class:match(":") then
    removed("markup", stringify(div))
    return {}, false
  end
end

local function with_environments(document)
  local reader = stringify(document.meta.reader or "")
  if reader == "rst" then return document:walk({ traverse = "topdown", Div = directive }) end
  if reader ~= "latex" then return nil end
  return document:walk({ traverse = "topdown", Div = pseudocode }):walk({ Div = environment })
end

local inner = {
  -- A comment in a formula, and a box of tcolorbox around it, which no other program draws.
  Math = function(math)
    math.text = math.text:gsub("^%%[^\n]*\n?", ""):gsub("([^\\])%%[^\n]*", "%1"):gsub("\\tc%a*math%s*%b[]", "\\boxed")
    return math
  end,
  Strong = flat("Strong"),
  Emph = flat("Emph"),
  Image = picture,
  Link = function(link)
    local label = link.attributes["reference-type"] and link.attributes.reference
    if label and link.target == "#" .. label then return pandoc.Str("[?" .. label .. "]") end
    -- pandoc's text for a reference of DocBook to a name that the book does not have.
    if stringify(link) == "???" then return pandoc.Str("[?" .. link.target:gsub("^#", "") .. "]") end
    if #link.content == 0 and link.target:match("^%a+:") then return pandoc.Str(link.target) end
    return link.content
  end,
  Span = function(span)
    if aside(span) then removed("navigation", stringify(span)) return {} end
    if span.classes:includes("math") and #span.content == 1 and span.content[1].t == "Str" then
      return pandoc.Math("InlineMath", span.content[1].text)
    end
    for _, class in ipairs(span.classes) do
      if class:match("secnum") or class:match("section%-number") or class:match("chapter%-number") then
        return span.content .. { pandoc.Space() }
      end
    end
    return span.content
  end,
  Superscript = raised("^"),
  Subscript = raised("_"),
  Underline = function(element) return element.content end,
  SmallCaps = function(element) return element.content end,
  Cite = function(cite) return cite.content end,
  RawInline = raw,
  Str = function(str)
    local clean = str.text:gsub("\194\173", ""):gsub("\226\128\139", "")
    if clean ~= str.text then return clean == "" and {} or pandoc.Str(clean) end
  end,
}

-- Display formulas stand in paragraphs of their own, where a reader of Markdown finds them.
local function apart(kind)
  return function(block)
    local parts, run = pandoc.Blocks({}), pandoc.Inlines({})
    local function close()
      while #run > 0 and BLANK[run[1].t] do run:remove(1) end
      while #run > 0 and BLANK[run[#run].t] do run:remove(#run) end
      if #run > 0 then parts:insert(kind(run)) end
      run = pandoc.Inlines({})
    end
    for _, inline in ipairs(block.content) do
      if inline.t == "Math" and inline.mathtype == "DisplayMath" then
        close()
        -- A blank line would end the paragraph, and the formula with it.
        local text = inline.text:gsub("\n%s*\n", "\n"):gsub("^%s+", ""):gsub("%s+$", "")
        parts:insert(pandoc.Para({ pandoc.Math("DisplayMath", text) }))
      else
        run:insert(inline)
      end
    end
    close()
    return parts
  end
end

-- Paragraphs of a cell, those of its lists among them.
local function paragraphs(blocks)
  local made = pandoc.Blocks({})
  for _, block in ipairs(blocks) do
    if block.t == "BulletList" or block.t == "OrderedList" then
      for _, item in ipairs(block.content) do made:extend(paragraphs(item)) end
    else
      made:insert(block)
    end
  end
  return made
end

local DIVISION = { pandoc.Space(), pandoc.Str("/"), pandoc.Space() }

local function cell_inlines(cell)
  local inlines = pandoc.utils.blocks_to_inlines(paragraphs(cell.contents), DIVISION)
  return pandoc.Inlines(inlines):walk({
    LineBreak = pandoc.Space,
    SoftBreak = pandoc.Space,
    Code = function(code)
      local parts = pandoc.Inlines({})
      for line in code.text:gmatch("[^\n]+") do
        if #parts > 0 then parts:extend(DIVISION) end
        parts:insert(pandoc.Code(line))
      end
      return parts
    end,
    -- A bar would end the cell.
    Math = function(math)
      local text = math.text:gsub("\\|", "\\Vert "):gsub("|", "\\vert "):gsub("%s*\n%s*", " ")
      return pandoc.Math("InlineMath", text)
    end,
  })
end

-- Rows of cells, empty where a cell to the left or above extends.
local function rows_of(rows)
  local made, below = {}, {}
  for _, row in ipairs(rows) do
    local cells = {}
    local function covered()
      while (below[#cells + 1] or 0) > 0 do
        below[#cells + 1] = below[#cells + 1] - 1
        cells[#cells + 1] = {}
      end
    end
    for _, cell in ipairs(row.cells) do
      covered()
      for place = 1, cell.col_span do
        below[#cells + 1] = cell.row_span - 1
        cells[#cells + 1] = place == 1 and { pandoc.Plain(cell_inlines(cell)) } or {}
      end
    end
    covered()
    made[#made + 1] = cells
  end
  return made
end

local function plain_table(element)
  local body = pandoc.List({})
  for _, each in ipairs(element.bodies) do
    body:extend(each.head)
    body:extend(each.body)
  end
  body:extend(element.foot.rows)
  local head = element.head.rows
  local heads, rows, wide = rows_of(head), pandoc.List(rows_of(body)), 1
  for _, part in ipairs({ heads, rows }) do
    for _, cells in ipairs(part) do wide = math.max(wide, #cells) end
  end
  -- A single cell is a frame around text.
  if wide == 1 and #head + #body == 1 then return element.caption.long .. (head[1] or body[1]).cells[1].contents end
  for place = #heads, 2, -1 do rows:insert(1, heads[place]) end
  for _, cells in ipairs({ heads[1] or {}, table.unpack(rows) }) do
    while #cells < wide do cells[#cells + 1] = {} end
  end
  local aligns, widths = {}, {}
  for place = 1, wide do aligns[place], widths[place] = "AlignDefault", 0 end
  local simple = pandoc.SimpleTable({}, aligns, widths, heads[1] or {}, rows)
  local made = pandoc.Blocks({})
  made:extend(element.caption.long)
  made:insert(pandoc.utils.from_simple_table(simple))
  return made
end

local function definitions(list)
  local made = pandoc.Blocks({})
  for _, item in ipairs(list.content) do
    made:insert(pandoc.Para({ pandoc.Strong(item[1]) }))
    for _, blocks in ipairs(item[2]) do made:extend(blocks) end
  end
  return made
end

-- Items are named by their letters elsewhere, and plain Markdown has numbers alone.
local function lettered(list)
  local style = list.style
  if not style:match("Alpha") and not style:match("Roman") then return nil end
  local made = {}
  for place, item in ipairs(list.content) do
    local number = list.start + place - 1
    local name = style:match("Roman") and pandoc.utils.to_roman_numeral(number):lower() or string.char(97 + (number - 1) % 26)
    if style:match("^Upper") then name = name:upper() end
    local ends = ({ TwoParens = ")", OneParen = ")" })[list.delimiter] or "."
    -- As text the sign behind the letter would be written with a backslash.
    local sign = (list.delimiter == "TwoParens" and "(" or "") .. name .. ends .. " "
    local named = pandoc.Inlines({ pandoc.RawInline("commonmark", sign) })
    local first = item[1]
    if first and (first.t == "Plain" or first.t == "Para") then
      first.content = named .. first.content
    else
      item:insert(1, pandoc.Plain(named))
    end
    made[#made + 1] = item
  end
  return pandoc.BulletList(made)
end

local function lines(block)
  local run = pandoc.Inlines({})
  for place, line in ipairs(block.content) do
    if place > 1 then run:insert(pandoc.LineBreak()) end
    run:extend(line)
  end
  return pandoc.Para(run)
end

local function paragraph(block)
  if is_navigation(block.content) or is_path(block.content) or is_furniture(block.content) then removed("navigation", stringify(block)) return {} end
  if is_licence(stringify(block)) then removed("licence", stringify(block)) return {} end
end

local function mark(element)
  local found = nil
  element:walk({ Superscript = function() found = true end, Link = function() found = true end })
  if found then return { pandoc.Str("[" .. stringify(element) .. "]") }, false end
end

-- What a raised or lowered mark stands at, as TeX, and what is left of the text before it; nil for a whole word.
local function base(inline)
  if inline.t == "Math" and inline.mathtype == "InlineMath" then return inline.text, nil end
  local str = inline
  if (inline.t == "Emph" or inline.t == "Strong") and #inline.content == 1 then str = inline.content[1] end
  if str.t ~= "Str" then return nil end
  local rest, last = str.text:match("^(.-)([%w]+)$")
  if not last or (#last > 1 and not last:match("^%d+$")) then
    rest, last = str.text:match("^(.-)([%)%]])$")
  end
  if not last then return nil end
  return last, rest ~= "" and pandoc.Str(rest) or nil
end

local function is_mark(inline)
  return inline.t == "Math" and inline.mathtype == "InlineMath" and inline.text:match("^[%^_]{") ~= nil
end

-- Pieces of one code that had markup inside are joined, and marks with what they stand at.
local function joined(inlines)
  local made = pandoc.Inlines({})
  for _, inline in ipairs(inlines) do
    local last = made[#made]
    if last and last.t == "LineBreak" and inline.t == "LineBreak" then
      -- Room to write in says nothing.
    elseif last and last.t == "Code" and inline.t == "Code" then
      last.text = last.text .. inline.text
      made[#made] = last
    elseif last and is_mark(inline) then
      local text, rest = base(last)
      if text then
        made:remove(#made)
        if rest then made:insert(rest) end
        made:insert(pandoc.Math("InlineMath", text .. inline.text))
      else
        made:insert(inline)
      end
    else
      made:insert(inline)
    end
  end
  return made
end

local QUESTIONS, ANSWERS = set("exercise, problem, question, quiz"), set("answer, hint, solution")

-- A question about a picture cannot be answered without it.
local function question(div)
  if not QUESTIONS[(div.classes[1] or ""):lower()] then return nil end
  local lost = false
  div:walk({
    traverse = "topdown",
    Div = function(inner) if ANSWERS[(inner.classes[1] or ""):lower()] then return inner, false end end,
    Image = function(image) lost = lost or not table.concat(image.classes, " "):match("math") end,
  })
  if lost then div.content:insert(pandoc.Para({ pandoc.Str("[?picture]") })) end
  return div
end

local asides = {
  traverse = "topdown",
  Inlines = formulas,
  Superscript = mark,
  Link = function(link)
    if #link.content == 1 and link.content[1].t == "Superscript" then return mark(link) end
    if link.classes:includes("noteref") or link.attributes["epub:type"] == "noteref" then
      return { pandoc.Str("[" .. stringify(link) .. "]") }, false
    end
  end,
  Div = function(div)
    if aside(div) then removed("navigation", stringify(div)) return {}, false end
    return question(div)
  end,
  Para = paragraph,
  Plain = paragraph,
}

local blocks = {
  Inlines = joined,
  Strong = function(strong) if not stringify(strong):match("%S") then return pandoc.Space() end end,
  Figure = function(figure)
    local made = pandoc.Blocks({})
    made:extend(figure.content)
    made:extend(figure.caption.long)
    return made
  end,
  Div = function(div) return div.content end,
  RawBlock = raw,
  -- Without a language it would be written by indentation alone.
  CodeBlock = function(code)
    if #code.classes == 0 then return pandoc.CodeBlock(code.text, pandoc.Attr("", { "text" })) end
  end,
  Table = plain_table,
  DefinitionList = definitions,
  OrderedList = lettered,
  LineBlock = lines,
  HorizontalRule = function() return {} end,
  Note = function(note)
    if stringify(note.content):match("%S") then return nil end
    note:walk({ RawBlock = raw })
    return {}
  end,
  Header = function(header)
    local words = function(element) return element.content end
    local content = header.content:walk({ LineBreak = pandoc.Space, Note = function() return {} end, Strong = words })
    while #content > 0 and content[1].t == "Space" do content:remove(1) end
    return #content > 0 and pandoc.Header(header.level, content) or {}
  end,
}

-- In AsciiDoc an empty line ends no list; the reader begins another one behind it.
local function continued(blocks)
  local made = pandoc.Blocks({})
  for _, block in ipairs(blocks) do
    local last = made[#made]
    if last and last.t == block.t and (block.t == "BulletList" or block.t == "OrderedList" and block.start == 1) then
      last.content:extend(block.content)
      made[#made] = last
    else
      made:insert(block)
    end
  end
  return made
end

-- In AsciiDoc the reader parts a code at its blanks.
local function whole_code(inlines)
  local made = pandoc.Inlines({})
  for _, inline in ipairs(inlines) do
    local last, before = made[#made], made[#made - 1]
    if inline.t == "Code" and before and before.t == "Code" and last.t == "Space" then
      made:remove(#made)
      made[#made] = pandoc.Code(before.text .. " " .. inline.text)
    else
      made:insert(inline)
    end
  end
  return made
end

local function with_whole_parts(document)
  if stringify(document.meta.reader or "") ~= "asciidoc" then return nil end
  return document:walk({ Blocks = continued, Inlines = whole_code })
end

-- What comes before the first heading of a page and has no sentence leads around, or describes the page; and a line
-- that continues the number of its page's heading is a heading.
local function with_page_headings(document)
  local reader = stringify(document.meta.reader or "")
  if not reader:match("^html") and not reader:match("^epub") then return nil end
  local number, level, first = nil, 0, nil
  for place, block in ipairs(document.blocks) do
    if block.t == "Header" then
      first = first or place
      number, level = stringify(block):match("^(%d+)%.?%s"), block.level
    elseif block.t == "Para" and number then
      local own, rest = stringify(block):match("^%s*(" .. number .. "%.[%d%.]+)%s+(%S.*)$")
      local next = document.blocks[place + 1]
      -- In a list of contents another number follows.
      local is_last = not next or next.t == "Header" or stringify(next):match("^%s*%d+%.%d")
      if own and #rest < 100 and not is_last and not rest:match("[%.:;,!]%s*$") then
        local depth = select(2, own:gsub("%.%d", ""))
        document.blocks[place] = pandoc.Header(math.min(level + depth, 6), block.content)
      end
    end
  end
  while reader:match("^html") and first and first > 1 do
    first = first - 1
    local block = document.blocks[first]
    local text = (block.t == "Para" or block.t == "Plain") and stringify(block) or "."
    if not text:match("[%.!?]") then
      removed("navigation", text)
      document.blocks:remove(first)
    end
  end
  return document
end

local NOTES = set("footnote, endnote, rearnote")

-- Notes of an EPUB by the file and name to which links refer: pandoc reads only those of the file that has the link.
local function without_notes(blocks, notes, file)
  local made, note = pandoc.Blocks({}), nil
  for _, block in ipairs(blocks) do
    local first = block.t == "Para" and #block.content == 1 and block.content[1]
    local tag = block.t == "RawBlock" and block.text or ""
    local kind, name = tag:match('^<aside.-epub:type="([%w]+)'), tag:match('^<aside.-%sid="([^"]+)"')
    if first and first.t == "Span" and #first.content == 0 then file = first.identifier end
    if kind and NOTES[kind] and name and notes[file .. "_" .. name] then
      note = notes[file .. "_" .. name]
    elseif note then
      if tag == "</aside>" then note = nil else note:insert(block) end
    elseif block.t == "Div" and block.classes:find_if(function(class) return NOTES[class] end) and notes[block.identifier] then
      notes[block.identifier]:extend(block.content)
    else
      if block.t == "Div" then block.content, file = without_notes(block.content, notes, file) end
      made:insert(block)
    end
  end
  return made, file
end

local function with_notes(document)
  if not stringify(document.meta.reader or ""):match("^epub") then return nil end
  local notes = {}
  document:walk({ Link = function(link)
    if link.classes:includes("noteref") then notes[link.target:sub(2)] = pandoc.Blocks({}) end
  end })
  document.blocks = without_notes(document.blocks, notes, "")
  return document:walk({ Link = function(link)
    local note = link.classes:includes("noteref") and notes[link.target:sub(2)]
    if note and #note > 0 then return pandoc.Note(note) end
  end })
end

return {
  { Pandoc = with_notes },
  { Pandoc = with_whole_parts },
  { Pandoc = with_environments },
  { Div = statement },
  asides,
  inner,
  blocks,
  { Pandoc = with_page_headings },
  { Para = apart(pandoc.Para), Plain = apart(pandoc.Plain) },
}
