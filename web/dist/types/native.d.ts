/** The member of this name that the platform gave `node`: a method is bound to it. */
export declare function native<Of extends object, Name extends keyof Of>(node: Of, name: Name): Of[Name];
/** A new element, of ours: it has no names in it yet. */
export declare const create: <Tag extends keyof HTMLElementTagNameMap>(tag: Tag) => HTMLElementTagNameMap[Tag];
/** The elements that a selector names. Throws where it is none. */
export declare const select: <Found extends Element>(selector: string) => Found[];
