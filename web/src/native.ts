// What names in a page cannot hide. The fields of a form, and a document's images, forms and frames, are its properties by their names and ids, and come
// before its own members (Web IDL, [LegacyOverrideBuiltIns]): a field called `after` hides `form.after`, an image called `body` hides `document.body`. So
// nowhere in the library is a member of a page's element or document read as `form.after`.

/** The member of this name that the platform gave `node`: a method is bound to it. */
export function native<Of extends object, Name extends keyof Of>(node: Of, name: Name): Of[Name] {
  const member = Reflect.get(Object.getPrototypeOf(node), name, node);
  return typeof member === "function" ? member.bind(node) : member;
}

/** A new element, of ours: it has no names in it yet. */
export const create = <Tag extends keyof HTMLElementTagNameMap>(tag: Tag): HTMLElementTagNameMap[Tag] => native(document, "createElement")(tag);

/** The elements that a selector names. Throws where it is none. */
export const select = <Found extends Element>(selector: string): Found[] => [...native(document, "querySelectorAll")<Found>(selector)];
