// Search of a site that is opened as files: a browser starts no worker from such a page, so the worker's script runs in
// a hidden frame. What this has of Worker is what Material for MkDocs uses: messages, and the script's own URL.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const scope = frame.contentWindow
      scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      scope.importScripts = () => { throw new Error("found importScripts, expected a search in English") }
      const deliver = data => scope.dispatchEvent(new scope.MessageEvent("message", { data }))
      this.ready = new Promise((resolve, reject) => {
        const script = scope.document.createElement("script")
        script.src = url
        script.onload = () => resolve(deliver)
        script.onerror = reject
        scope.document.body.append(script)
      })
    }

    postMessage(data) {
      this.ready.then(deliver => deliver(data))
    }
  }
}
